#include <algorithm>
#include <utility>

#include "proximal/class_block.hpp"
#include "proximal/quantizer.hpp"
#include "proximal/state_updates.hpp"

namespace steelyard {

namespace {

// Checks that each class has at least the weight to be subtracted. Weights are compared in the finer weight step.
Removal check_enough(const ExactState& state, const ExactState& other, std::span<const std::int32_t> places) {
    const int finest = std::min(state.weight_exponent, other.weight_exponent);
    for (std::size_t s = 0; s < places.size(); ++s) {
        if (places[s] < 0) continue;
        const Big theirs = count_of(other, s), mine = count_of(state, static_cast<std::size_t>(places[s]));
        const Big present = mine << static_cast<unsigned>(state.weight_exponent - finest);
        const Big wanted = theirs << static_cast<unsigned>(other.weight_exponent - finest);
        if (present < wanted)
            return {Refusal::too_many, places[s], theirs.scaled(other.weight_exponent),
                    mine.scaled(state.weight_exponent)};
    }
    return {};
}

// Adds or subtracts rows that are not quantized yet. Their slot numbers are those of `state`.
Removal merge_early(ExactState& state, EarlyRows early, int sign, bool checked, unsigned n_threads) {
    const std::size_t d = state.n_features;
    const Rows<double> rows{early.rows.data(), early.slots.size(), d};
    if (sign < 0 && checked) return remove_from(state, rows, early.slots, early.weights, n_threads);
    if (sign < 0)
        for (std::size_t i = 0; i < early.weights.size(); ++i) {
            std::int64_t left = early.weights[i];
            if (!state.is_frozen && early.slots[i] >= 0)
                left = cancel(state.early.rows, state.early.weights, early.rows.data() + i * d, d, left,
                              &state.early.slots, early.slots[i]);
            early.weights[i] = -left;
        }
    drop_zero_weights(state.early.rows, state.early.weights, &state.early.slots, d);
    if (state.is_frozen)
        add_quantized(state, rows, early.slots, early.weights, n_threads);
    else
        add_unquantized(state, rows, early.slots, early.weights, early.sparse, n_threads);
    if (sign < 0)
        for (auto& slot : state.slots)
            if (slot && count_of(*slot).is_zero())
                finish_removal((mutable_block(slot), slot), d, state.quantizer, n_threads);
    return {};
}

// Adds or subtracts quantized statistics.
Removal merge_quantized(ExactState& state, ExactState theirs, std::span<const std::int32_t> places, int sign,
                        bool checked, unsigned n_threads) {
    if (!state.is_frozen) freeze_with(state, theirs.quantizer, n_threads);
    const Quantizer quantizer = common_quantizer(state.quantizer, theirs.quantizer);
    bring_to(state, quantizer, state.weight_exponent, n_threads);
    bring_to(theirs, quantizer, state.weight_exponent, n_threads);
    for (std::size_t s = 0; s < theirs.slots.size(); ++s) {
        if (!theirs.slots[s] || places[s] < 0) continue;
        auto& mine = state.slots[static_cast<std::size_t>(places[s])];
        merge_block(mine, *theirs.slots[s], sign, state.n_features, n_threads);
        if (sign > 0) continue;
        if (checked && !mine->sums &&
            std::any_of(mine->weights.begin(), mine->weights.end(), [](std::int64_t w) { return w < 0; }))
            return never_learned(places[s]);
        const bool possible = finish_removal(mine, state.n_features, state.quantizer, n_threads);
        if (checked && !possible) return never_learned(places[s]);
    }
    return {};
}

}  // namespace

Removal merge(ExactState& state, const ExactState& other, std::span<const std::int32_t> places, int sign, bool checked,
              unsigned n_threads) {
    if (checked)
        if (const Removal refused = check_enough(state, other, places); refused.refusal != Refusal::none)
            return refused;
    ExactState next = state, theirs = other;
    make_slots(next, places);
    const int finest = std::min(next.weight_exponent, theirs.weight_exponent);
    refine_weights(next, static_cast<unsigned>(next.weight_exponent - finest));
    refine_weights(theirs, static_cast<unsigned>(theirs.weight_exponent - finest));
    if (!theirs.is_frozen)
        for (std::int32_t& slot : theirs.early.slots) slot = places[static_cast<std::size_t>(slot)];
    const Removal removal = theirs.is_frozen
                                ? merge_quantized(next, std::move(theirs), places, sign, checked, n_threads)
                                : merge_early(next, std::move(theirs.early), sign, checked, n_threads);
    if (removal.refusal == Refusal::none) state = std::move(next);
    return removal;
}

ExactState regrouped(const ExactState& state, std::span<const std::int32_t> places, std::size_t n_slots,
                     unsigned n_threads) {
    ExactState result = state;
    result.slots.assign(n_slots, nullptr);
    for (std::size_t s = 0; s < state.slots.size(); ++s) {
        if (!state.slots[s] || places[s] < 0) continue;
        auto& place = result.slots[static_cast<std::size_t>(places[s])];
        if (!place)
            place = state.slots[s];
        else
            merge_block(place, *state.slots[s], 1, state.n_features, n_threads);
    }
    EarlyRows& early = result.early;
    for (std::size_t i = 0; i < early.slots.size(); ++i) {
        early.slots[i] = places[static_cast<std::size_t>(early.slots[i])];
        if (early.slots[i] < 0) early.weights[i] = 0;
    }
    drop_zero_weights(early.rows, early.weights, &early.slots, state.n_features);
    return result;
}

ExactState permute_features(const ExactState& state, std::span<const std::int64_t> from) {
    const std::size_t d = state.n_features, n = from.size();
    const auto rows_of = [&](const std::vector<double>& rows) {
        const std::size_t count = rows.size() / d;
        std::vector<double> moved(count * n, 0.0);
        for (std::size_t i = 0; i < count; ++i)
            for (std::size_t j = 0; j < n; ++j)
                if (from[j] >= 0) moved[i * n + j] = rows[i * d + static_cast<std::size_t>(from[j])];
        return moved;
    };
    ExactState result = state;
    result.n_features = n;
    result.early.rows = rows_of(state.early.rows);
    for (auto& slot : result.slots) {
        if (!slot) continue;
        auto moved = std::make_shared<ExactBlock>();
        moved->rows = rows_of(slot->rows);
        moved->weights = slot->weights;
        if (slot->sums) moved->sums = std::make_shared<Triangle>(slot->sums->permute_features(from));
        slot = std::move(moved);
    }
    if (state.is_frozen) {
        result.quantizer = empty_quantizer(n);
        for (std::size_t j = 0; j < n; ++j) {
            if (from[j] < 0) continue;
            const auto old = static_cast<std::size_t>(from[j]);
            result.quantizer.exponent[j] = state.quantizer.exponent[old];
            result.quantizer.origin[j] = state.quantizer.origin[old];
            result.quantizer.rounds[j] = state.quantizer.rounds[old];
            result.quantizer.mixed[j] = state.quantizer.mixed[old];
        }
    }
    return result;
}

}  // namespace steelyard
