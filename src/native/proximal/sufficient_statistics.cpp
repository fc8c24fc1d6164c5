#include "proximal/sufficient_statistics.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "proximal/class_block.hpp"
#include "proximal/quantizer.hpp"
#include "proximal/state_updates.hpp"

namespace steelyard {

bool has_rows(const ExactState& state, std::size_t slot) {
    if (slot < state.slots.size() && state.slots[slot]) return true;
    for (const std::int32_t early : state.early.slots)
        if (static_cast<std::size_t>(early) == slot) return true;
    return false;
}

Big count_of(const ExactState& state, std::size_t slot) {
    Big count(0);
    if (slot < state.slots.size() && state.slots[slot]) count = count_of(*state.slots[slot]);
    for (std::size_t i = 0; i < state.early.slots.size(); ++i)
        if (static_cast<std::size_t>(state.early.slots[i]) == slot) count = count + Big(state.early.weights[i]);
    return count;
}

void fold_all(ExactState& state, unsigned n_threads) {
    ExactState next = state;
    if (!next.is_frozen) freeze_quantizer(next, n_threads);
    for (auto& slot : next.slots)
        if (slot) fold_pending(mutable_block(slot), next.n_features, n_threads);
    state = std::move(next);
}

void decay(ExactState& state, double factor, unsigned n_threads) {
    ExactState next = state;
    if (next.weight_exponent == 0) refine_weights(next, kWeightFractionBits);
    const auto decayed = [&](std::vector<std::int64_t>& weights) {
        for (std::int64_t& weight : weights) {
            const double product = static_cast<double>(weight) * factor;
            if (!(std::fabs(product) < 0x1p62)) throw std::overflow_error("the weights would grow beyond 2^40");
            weight = static_cast<std::int64_t>(std::floor(product + 0.5));
        }
    };
    const std::size_t d = next.n_features;
    decayed(next.early.weights);
    drop_zero_weights(next.early.rows, next.early.weights, &next.early.slots, d);
    for (auto& slot : next.slots) {
        if (!slot) continue;
        ExactBlock& block = mutable_block(slot);
        if (block.sums) {
            fold_pending(block, d, n_threads);
            auto sums = copy_sums(block, d);
            sums->decay(factor);
            if (sums->count().is_zero())
                slot.reset();
            else
                block.sums = std::move(sums);
            continue;
        }
        decayed(block.weights);
        drop_zero_weights(block.rows, block.weights, nullptr, d);
        if (block.weights.empty()) slot.reset();
    }
    state = std::move(next);
}

void freeze_quantizer(ExactState& state, unsigned n_threads) {
    if (state.is_frozen || state.early.slots.empty()) return;
    ExactState next = state;
    const EarlyRows& early = next.early;
    const std::size_t d = next.n_features;
    const Quantizer quantizer = fit_quantizer(std::min(kQuantizerRows, early.slots.size()), d, early.sparse,
                                              [&](std::size_t i, std::size_t j) { return early.rows[i * d + j]; });
    freeze_with(next, quantizer, n_threads);
    state = std::move(next);
}

void freeze_quantizer(ExactState& state, const Quantizer& quantizer) {
    ExactState next = state;
    freeze_with(next, quantizer, 1);
    state = std::move(next);
}

void form_sums(ExactState& state, std::span<const std::int32_t> slots, unsigned n_threads) {
    if (!state.is_frozen) return;
    for (const std::int32_t slot : slots)
        if (static_cast<std::size_t>(slot) < state.slots.size() && state.slots[static_cast<std::size_t>(slot)])
            form_sums(state.slots[static_cast<std::size_t>(slot)], state.n_features, n_threads);
}

TriangleSum folded(const ExactState& state, std::span<const std::int32_t> slots, unsigned n_threads) {
    const std::size_t d = state.n_features;
    TriangleSum total(d + 1);
    ExactBlock pending;
    for (const std::int32_t slot : slots) {
        const auto& block = state.slots[static_cast<std::size_t>(slot)];
        if (!block) continue;
        if (const Triangle* all = block->formed()) {
            total.add(*all);
            continue;
        }
        if (block->sums) total.add(*block->sums);
        pending.rows.insert(pending.rows.end(), block->rows.begin(), block->rows.end());
        pending.weights.insert(pending.weights.end(), block->weights.begin(), block->weights.end());
    }
    if (pending.weights.empty()) return total;
    Triangle sums(d + 1);
    fold_pending(sums, pending, d, n_threads);
    total.add(std::move(sums));
    return total;
}

}  // namespace steelyard
