#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "proximal/class_block.hpp"
#include "proximal/quantizer.hpp"
#include "proximal/state_updates.hpp"

namespace steelyard {

namespace {

template <class Index>
std::vector<double> dense(const SparseBatch<Index>& batch, std::size_t begin, std::size_t end, std::size_t d) {
    std::vector<double> rows((end - begin) * d, 0.0);
    for (std::size_t i = begin; i < end; ++i)
        for (auto k = batch.row_starts[i]; k < batch.row_starts[i + 1]; ++k)
            rows[(i - begin) * d + static_cast<std::size_t>(batch.columns[static_cast<std::size_t>(k)])] =
                batch.values[static_cast<std::size_t>(k)];
    return rows;
}

// Adds sparse rows to the sums. The origin must be zero, so only the stored values contribute to the sums.
template <class Index>
void fold_sparse(ExactState& state, const SparseBatch<Index>& batch, std::span<const std::int64_t> weights) {
    const std::size_t d = state.n_features;
    std::vector<double> needed(d, 0.0);
    for (std::size_t k = 0; k < batch.values.size(); ++k) {
        const double x = batch.values[k];
        if (!(std::fabs(x) <= kLargestValue)) throw BadValues("values must be finite and at most 1e300");
        const auto j = static_cast<std::size_t>(batch.columns[k]);
        if (x != 0.0 && !state.quantizer.rounds[j] && std::max(lowest_bit(x), kFinest) < state.quantizer.exponent[j])
            needed[j] = 1.0;
    }
    if (std::any_of(needed.begin(), needed.end(), [](double x) { return x != 0.0; })) {
        constexpr std::size_t step = 1024;
        for (std::size_t begin = 0; begin < batch.slots.size(); begin += step) {
            const std::size_t end = std::min(batch.slots.size(), begin + step);
            const std::vector<double> rows = dense(batch, begin, end, d);
            refine_for<double>(state, {rows.data(), end - begin, d}, needed, 1);
        }
    }
    for (const auto& [slot, index] : by_slot(batch.slots, weights)) {
        ExactBlock& block = mutable_block(state.slots[static_cast<std::size_t>(slot)]);
        auto sums = copy_sums(block, d);
        std::vector<std::size_t> columns;
        std::vector<Big> v;
        for (const std::uint32_t i : index) {
            columns.clear();
            v.clear();
            unsigned top = 1;
            for (auto k = batch.row_starts[i]; k < batch.row_starts[i + 1]; ++k) {
                const auto j = static_cast<std::size_t>(batch.columns[static_cast<std::size_t>(k)]);
                columns.push_back(j);
                v.push_back(nearest_step(batch.values[static_cast<std::size_t>(k)], state.quantizer.exponent[j]));
                top = std::max(top, v.back().bit_length());
            }
            const std::int64_t weight = weights.empty() ? 1 : weights[i];
            const Big w(weight);
            sums->reserve(2.0 * top + w.bit_length());
            if (2 * top + w.bit_length() < 126) {
                for (std::size_t a = 0; a < v.size(); ++a) {
                    const int128 left = (w * v[a]).narrow();
                    for (std::size_t b = 0; b <= a; ++b)
                        sums->add_at(Triangle::place(columns[a], columns[b]), left * v[b].narrow());
                    sums->add_at(Triangle::place(d, columns[a]), left);
                }
                sums->add_at(Triangle::place(d, d), weight);
            } else {
                for (std::size_t a = 0; a < v.size(); ++a) {
                    for (std::size_t b = 0; b <= a; ++b) {
                        const std::size_t at = Triangle::place(columns[a], columns[b]);
                        sums->set(at, sums->get(at) + w * v[a] * v[b]);
                    }
                    const std::size_t at = Triangle::place(d, columns[a]);
                    sums->set(at, sums->get(at) + w * v[a]);
                }
                sums->add_at(Triangle::place(d, d), weight);
            }
        }
        block.sums = std::move(sums);
    }
}

}  // namespace

template <class Index>
void add_rows(ExactState& state, const SparseBatch<Index>& batch) {
    ExactState next = state;
    make_slots(next, batch.slots);
    const std::vector<std::int64_t> weights = steps_of(next, batch.weights, batch.slots.size());
    if (!next.is_frozen) {
        const std::size_t n = std::min(batch.slots.size(), kQuantizerRows);
        if (next.early.slots.size() + batch.slots.size() < kQuantizerRows) {
            const std::vector<double> rows = dense(batch, 0, n, next.n_features);
            add_unquantized<double>(next, {rows.data(), n, next.n_features}, batch.slots, weights, true, 1);
            state = std::move(next);
            return;
        }
        next.early.sparse = true;
        const std::vector<double> rows = dense(batch, 0, n, next.n_features);
        check_finite<double>({rows.data(), n, next.n_features});
        const std::size_t d = next.n_features, before = std::min(kQuantizerRows, next.early.slots.size());
        const EarlyRows& early = next.early;
        const Quantizer quantizer = fit_quantizer(kQuantizerRows, d, true, [&](std::size_t i, std::size_t j) {
            return i < before ? early.rows[i * d + j] : rows[(i - before) * d + j];
        });
        freeze_with(next, quantizer, 1);
    }
    if (at_zero(next.quantizer)) {
        fold_sparse(next, batch, weights);
    } else {
        ExactState apart = next;
        for (auto& slot : apart.slots) slot.reset();
        std::fill(apart.quantizer.origin.begin(), apart.quantizer.origin.end(), 0.0);
        fold_sparse(apart, batch, weights);
        std::vector<std::int32_t> places(apart.slots.size());
        std::iota(places.begin(), places.end(), 0);
        merge(next, apart, places, 1, false, 1);
    }
    state = std::move(next);
}

template <class Index>
Removal remove_rows(ExactState& state, const SparseBatch<Index>& batch) {
    ExactState next = state;
    make_slots(next, batch.slots);
    const std::vector<std::int64_t> weights = steps_of(next, batch.weights, batch.slots.size());
    const Removal refused = check_enough(next, batch.slots, weights);
    if (refused.refusal != Refusal::none) return refused;
    bool dense_way = !next.is_frozen;
    for (const std::int32_t slot : batch.slots)
        dense_way |= slot >= 0 && next.slots[static_cast<std::size_t>(slot)] &&
                     !next.slots[static_cast<std::size_t>(slot)]->sums;
    if (dense_way) {
        constexpr std::size_t step = 512;
        for (std::size_t begin = 0; begin < batch.slots.size(); begin += step) {
            const std::size_t end = std::min(batch.slots.size(), begin + step);
            const std::vector<double> rows = dense(batch, begin, end, next.n_features);
            const std::span<const std::int64_t> part =
                weights.empty() ? std::span<const std::int64_t>{} : std::span(weights).subspan(begin, end - begin);
            const Removal removal = remove_from<double>(next, {rows.data(), end - begin, next.n_features},
                                                        batch.slots.subspan(begin, end - begin), part, 1);
            if (removal.refusal != Refusal::none) return removal;
        }
        state = std::move(next);
        return {};
    }
    ExactState apart;
    apart.n_features = next.n_features;
    apart.slots.resize(next.slots.size());
    apart.weight_exponent = next.weight_exponent;
    apart.is_frozen = true;
    apart.quantizer = next.quantizer;
    std::fill(apart.quantizer.origin.begin(), apart.quantizer.origin.end(), 0.0);
    fold_sparse(apart, batch, weights);
    std::vector<std::int32_t> places(apart.slots.size());
    std::iota(places.begin(), places.end(), 0);
    const Removal removal = merge(next, apart, places, -1, true, 1);
    if (removal.refusal == Refusal::none) state = std::move(next);
    return removal;
}

#define STEELYARD_EXACT(Index)                                      \
    template void add_rows(ExactState&, const SparseBatch<Index>&); \
    template Removal remove_rows(ExactState&, const SparseBatch<Index>&);
STEELYARD_EXACT(std::int32_t)
STEELYARD_EXACT(std::int64_t)
#undef STEELYARD_EXACT

}  // namespace steelyard
