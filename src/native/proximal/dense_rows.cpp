#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "proximal/class_block.hpp"
#include "proximal/quantizer.hpp"
#include "proximal/state_updates.hpp"

namespace steelyard {

namespace {

constexpr std::size_t kMaxPendingRows = 512;

// Fast path: appends rows to the pending rows without copying the state. No statement after the first change can throw.
template <class T>
bool add_in_place(ExactState& state, const ExactBatch<T>& batch) {
    const std::size_t d = state.n_features, n = batch.slots.size();
    if (!state.is_frozen || n > kMaxPendingRows || !batch.weights.empty() || state.weight_exponent != 0) return false;
    std::vector<std::size_t> coming(state.slots.size(), 0);
    for (const std::int32_t slot : batch.slots) {
        if (slot < 0 || static_cast<std::size_t>(slot) >= state.slots.size()) return false;
        const auto& block = state.slots[static_cast<std::size_t>(slot)];
        if (!block || block.use_count() > 1 ||
            block->weights.size() + ++coming[static_cast<std::size_t>(slot)] > capacity(d))
            return false;
    }
    const StepTables tables(state.quantizer);
    const ScanResult found = scan(batch.rows, tables, 1);
    if (is_coarse(state.quantizer)) return false;
    for (std::size_t i = 0; i < n; ++i)
        if (found.beyond[i]) return false;
    for (std::size_t j = 0; j < d; ++j)
        if (found.remainder[j] != 0.0 && !state.quantizer.rounds[j]) return false;
    for (const std::int32_t slot : batch.slots) {
        ExactBlock& block = *state.slots[static_cast<std::size_t>(slot)];
        const std::size_t needed = block.weights.size() + coming[static_cast<std::size_t>(slot)];
        if (block.weights.capacity() >= needed && block.rows.capacity() >= needed * d) continue;
        const std::size_t room = std::min(capacity(d), std::max(needed, 2 * block.weights.capacity()));
        block.rows.reserve(room * d);
        block.weights.reserve(room);
    }
    for (std::uint32_t i = 0; i < n; ++i)
        append_pending(*state.slots[static_cast<std::size_t>(batch.slots[i])], batch.rows, {&i, 1}, {}, tables.steps());
    return true;
}

}  // namespace

std::map<std::int32_t, std::vector<std::uint32_t>> by_slot(std::span<const std::int32_t> slots,
                                                           std::span<const std::int64_t> weights) {
    std::int32_t most = -1;
    for (const std::int32_t slot : slots) most = std::max(most, slot);
    std::vector<std::uint32_t> sizes(static_cast<std::size_t>(most + 1), 0);
    const auto counts = [&](std::size_t i) { return slots[i] >= 0 && (weights.empty() || weights[i] != 0); };
    for (std::size_t i = 0; i < slots.size(); ++i)
        if (counts(i)) ++sizes[static_cast<std::size_t>(slots[i])];
    std::map<std::int32_t, std::vector<std::uint32_t>> groups;
    std::vector<std::uint32_t*> next(sizes.size(), nullptr);
    for (std::size_t slot = 0; slot < sizes.size(); ++slot)
        if (sizes[slot]) {
            auto& group = groups[static_cast<std::int32_t>(slot)];
            group.resize(sizes[slot]);
            next[slot] = group.data();
        }
    for (std::size_t i = 0; i < slots.size(); ++i)
        if (counts(i)) *next[static_cast<std::size_t>(slots[i])]++ = static_cast<std::uint32_t>(i);
    return groups;
}

namespace {

// Scans only the listed rows. In the result, `beyond` is 0 for all other rows.
template <class T>
ScanResult scan_some(Rows<T> rows, const std::vector<std::uint32_t>& index, const StepTables& tables) {
    ScanResult found{std::vector<double>(rows.n_features, 0.0), std::vector<double>(rows.n_features, 0.0),
                     std::vector<std::uint8_t>(rows.n_rows, 0)};
    for (const std::uint32_t i : index)
        scan_rows<T>({rows.data + i * rows.n_features, 1, rows.n_features}, tables.steps(), found.largest,
                     found.remainder, std::span(found.beyond).subspan(i, 1), 1);
    return found;
}

// Adds the rows of large classes without a separate scan. Rows of small classes are scanned and stay pending.
// Returns false, without changes, if scanning first is not slower or if steps must be refined first.
template <class T>
bool add_unscanned(ExactState& state, Rows<T> rows, std::span<const std::int32_t> slots, unsigned n_threads) {
    const std::size_t d = state.n_features;
    const StepTables tables(state.quantizer);
    if (d > kMostUnseen || !tables.tiny.empty() || !tables.coarse.empty()) return false;
    const auto groups = by_slot(slots, {});
    std::map<std::int32_t, std::shared_ptr<Triangle>> sums;
    std::vector<std::uint32_t> few;
    for (const auto& [slot, index] : groups) {
        const ExactBlock* block = state.slots[static_cast<std::size_t>(slot)].get();
        if (may_stay_pending(block, index.size(), d))
            few.insert(few.end(), index.begin(), index.end());
        else
            sums[slot] = block ? copy_sums(*block, d) : std::make_shared<Triangle>(d + 1);
    }
    if (2 * few.size() > rows.n_rows) return false;
    const ScanResult found = scan_some(rows, few, tables);
    for (std::size_t j = 0; j < d; ++j)
        if (found.remainder[j] > tables.slack[j]) return false;
    std::vector<Share> shares;
    for (const auto& [slot, triangle] : sums) shares.push_back({groups.at(slot), triangle.get()});
    std::vector<std::uint32_t> beyond;
    if (!steelyard::add_unscanned(rows, tables.steps(), shares, beyond, n_threads)) return false;
    for (const std::uint32_t i : beyond) check_finite<T>({rows.data + i * d, 1, d});
    check_finite(rows, found.beyond);
    for (const std::uint32_t i : beyond) add_beyond(*sums.at(slots[i]), rows, i, tables, state.quantizer);
    for (const auto& [slot, index] : groups) {
        ExactBlock& block = mutable_block(state.slots[static_cast<std::size_t>(slot)]);
        if (const auto summed = sums.find(slot); summed != sums.end()) {
            summed->second->shrink();
            block.sums = std::move(summed->second);
        } else {
            place(block, rows, index, {}, tables, state.quantizer, found, n_threads);
        }
    }
    return true;
}

}  // namespace

template <class T>
void add_quantized(ExactState& state, Rows<T> rows, std::span<const std::int32_t> slots,
                   std::span<const std::int64_t> weights, unsigned n_threads) {
    const bool all_count = std::all_of(slots.begin(), slots.end(), [](std::int32_t slot) { return slot >= 0; });
    if (weights.empty() && all_count && add_unscanned(state, rows, slots, n_threads)) return;
    std::optional<StepTables> tables(state.quantizer);
    ScanResult found = scan(rows, *tables, n_threads);
    check_finite(rows, is_coarse(state.quantizer) ? std::span<const std::uint8_t>{} : found.beyond);
    if (refine_for(state, rows, found.remainder, n_threads)) {
        tables.emplace(state.quantizer);
        found = scan(rows, *tables, n_threads);
    }
    for (const auto& [slot, index] : by_slot(slots, weights))
        place(mutable_block(state.slots[static_cast<std::size_t>(slot)]), rows, index, weights, *tables,
              state.quantizer, found, n_threads);
}

void make_slots(ExactState& state, std::span<const std::int32_t> slots) {
    std::int32_t most = -1;
    for (const std::int32_t slot : slots) most = std::max(most, slot);
    if (state.slots.size() < static_cast<std::size_t>(most + 1)) state.slots.resize(static_cast<std::size_t>(most + 1));
}

void freeze_with(ExactState& state, const Quantizer& quantizer, unsigned n_threads) {
    state.quantizer = quantizer;
    state.is_frozen = true;
    const EarlyRows early = std::move(state.early);
    state.early = {};
    make_slots(state, early.slots);
    if (!early.slots.empty())
        add_quantized<double>(state, {early.rows.data(), early.slots.size(), state.n_features}, early.slots,
                              early.weights, n_threads);
}

template <class T>
void add_unquantized(ExactState& state, Rows<T> rows, std::span<const std::int32_t> slots,
                     std::span<const std::int64_t> weights, bool sparse, unsigned n_threads) {
    check_finite(rows);
    EarlyRows& early = state.early;
    early.sparse |= sparse;
    const std::size_t d = state.n_features;
    if (early.slots.size() + slots.size() < kQuantizerRows) {
        for (std::size_t i = 0; i < slots.size(); ++i) {
            if (slots[i] < 0 || (!weights.empty() && weights[i] == 0)) continue;
            early.rows.insert(early.rows.end(), rows.data + i * d, rows.data + (i + 1) * d);
            early.slots.push_back(slots[i]);
            early.weights.push_back(weights.empty() ? 1 : weights[i]);
        }
        return;
    }
    const std::size_t before = std::min(kQuantizerRows, early.slots.size());
    const Quantizer quantizer = fit_quantizer(kQuantizerRows, d, early.sparse, [&](std::size_t i, std::size_t j) {
        return i < before ? early.rows[i * d + j] : static_cast<double>(rows.data[(i - before) * d + j]);
    });
    freeze_with(state, quantizer, n_threads);
    add_quantized(state, rows, slots, weights, n_threads);
}

Removal check_enough(const ExactState& state, std::span<const std::int32_t> slots,
                     std::span<const std::int64_t> weights) {
    std::map<std::int32_t, int128> wanted;
    for (std::size_t i = 0; i < slots.size(); ++i)
        if (slots[i] >= 0) wanted[slots[i]] += weights.empty() ? 1 : weights[i];
    for (const auto& [slot, amount] : wanted) {
        const Big present = count_of(state, static_cast<std::size_t>(slot));
        if (present < Big::of(amount))
            return {Refusal::too_many, slot, Big::of(amount).scaled(state.weight_exponent),
                    present.scaled(state.weight_exponent)};
    }
    return {};
}

template <class T>
Removal remove_from(ExactState& state, Rows<T> rows, std::span<const std::int32_t> slots,
                    std::span<const std::int64_t> weights, unsigned n_threads) {
    const std::size_t d = state.n_features;
    const auto weight_of = [&](std::size_t i) { return weights.empty() ? std::int64_t{1} : weights[i]; };
    const Removal refused = check_enough(state, slots, weights);
    if (refused.refusal != Refusal::none) return refused;
    std::vector<double> row(d);
    if (!state.is_frozen) {
        check_finite(rows);
        EarlyRows& early = state.early;
        for (std::size_t i = 0; i < slots.size(); ++i) {
            if (slots[i] < 0) continue;
            std::copy_n(rows.data + i * d, d, row.data());
            if (cancel(early.rows, early.weights, row.data(), d, weight_of(i), &early.slots, slots[i]) > 0)
                return never_learned(slots[i]);
        }
        drop_zero_weights(early.rows, early.weights, &early.slots, d);
        return {};
    }
    const StepTables tables(state.quantizer);
    const ScanResult found = scan(rows, tables, n_threads);
    check_finite(rows, is_coarse(state.quantizer) ? std::span<const std::uint8_t>{} : found.beyond);
    // If no value of a feature was ever rounded, a value that is not a multiple of the step cannot have been learned.
    for (std::size_t j = 0; j < d; ++j) {
        if (state.quantizer.rounds[j] || state.quantizer.mixed[j] || found.remainder[j] == 0.0) continue;
        for (std::size_t i = 0; i < rows.n_rows; ++i) {
            const double x = static_cast<double>(rows.data[i * d + j]);
            if (x != 0.0 && slots[i] >= 0 && std::max(lowest_bit(x), kFinest) < state.quantizer.exponent[j])
                return never_learned(slots[i]);
        }
    }
    std::vector<std::int64_t> negative(slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i) negative[i] = -weight_of(i);
    for (const auto& [slot, index] : by_slot(slots, weights)) {
        auto& slot_block = state.slots[static_cast<std::size_t>(slot)];
        ExactBlock& block = mutable_block(slot_block);
        if (!block.sums) {  // all rows of the class are pending, so every row to remove must be among them
            for (const std::uint32_t i : index) {
                if (found.beyond[i]) return never_learned(slot);
                count_row(rows.data + i * d, d, tables.steps(), row.data());
                if (cancel(block.rows, block.weights, row.data(), d, weight_of(i), nullptr, slot,
                           state.quantizer.mixed) > 0)
                    return never_learned(slot);
            }
            drop_zero_weights(block.rows, block.weights, nullptr, d);
        } else {
            place(block, rows, index, negative, tables, state.quantizer, found, n_threads);
        }
        if (!finish_removal(slot_block, d, state.quantizer, n_threads)) return never_learned(slot);
    }
    return {};
}

template <class T>
void add_rows(ExactState& state, const ExactBatch<T>& batch, unsigned n_threads) {
    if (add_in_place(state, batch)) return;
    ExactState next = state;
    make_slots(next, batch.slots);
    const std::vector<std::int64_t> weights = steps_of(next, batch.weights, batch.slots.size());
    if (next.is_frozen)
        add_quantized(next, batch.rows, batch.slots, weights, n_threads);
    else
        add_unquantized(next, batch.rows, batch.slots, weights, false, n_threads);
    state = std::move(next);
}

template <class T>
Removal remove_rows(ExactState& state, const ExactBatch<T>& batch, unsigned n_threads) {
    ExactState next = state;
    make_slots(next, batch.slots);
    const std::vector<std::int64_t> weights = steps_of(next, batch.weights, batch.slots.size());
    const Removal removal = remove_from(next, batch.rows, batch.slots, weights, n_threads);
    if (removal.refusal == Refusal::none) state = std::move(next);
    return removal;
}

#define STEELYARD_EXACT(T)                                                                                            \
    template void add_quantized(ExactState&, Rows<T>, std::span<const std::int32_t>, std::span<const std::int64_t>,   \
                                unsigned);                                                                            \
    template void add_unquantized(ExactState&, Rows<T>, std::span<const std::int32_t>, std::span<const std::int64_t>, \
                                  bool, unsigned);                                                                    \
    template Removal remove_from(ExactState&, Rows<T>, std::span<const std::int32_t>, std::span<const std::int64_t>,  \
                                 unsigned);                                                                           \
    template void add_rows(ExactState&, const ExactBatch<T>&, unsigned);                                              \
    template Removal remove_rows(ExactState&, const ExactBatch<T>&, unsigned);
STEELYARD_EXACT(double)
STEELYARD_EXACT(float)
#undef STEELYARD_EXACT

}  // namespace steelyard
