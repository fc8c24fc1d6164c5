#include "proximal/class_block.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "proximal/gram.hpp"

namespace steelyard {

namespace {

constexpr std::int64_t kLongWeight = 1 << 28;  // rows with larger weights are added one by one

// Row numbers grouped by weight. The rows of a group are added in one call.
// `beyond` lists the rows with values above kTwoDigits, which the loops over digits cannot add.
struct Runs {
    std::map<std::int64_t, std::vector<std::uint32_t>> by_weight;
    std::vector<std::uint32_t> beyond;
};

// Adds the rows of `runs` to sums of products. Values and weights may have any size.
template <class T>
void fold(Triangle& sums, Rows<T> rows, const Runs& runs, std::span<const std::int64_t> weights,
          const StepTables& tables, const Quantizer* quantizer, std::span<const double> largest, unsigned n_threads) {
    const std::size_t d = rows.n_features;
    std::vector<double> row(d);
    std::vector<std::int64_t> whole(d);
    const auto one_by_one = [&](std::uint32_t i, std::int64_t weight) {
        count_row(rows.data + i * d, d, tables.steps(), row.data());
        for (std::size_t j = 0; j < d; ++j) whole[j] = static_cast<std::int64_t>(row[j]);
        sums.add_row(whole, weight);
    };
    for (const auto& [weight, index] : runs.by_weight) {
        if (index.size() < 8 || std::abs(weight) > kLongWeight)
            for (const std::uint32_t i : index) one_by_one(i, weight);
        else
            add_products(rows, index, tables.steps(), largest, weight, sums, n_threads);
    }
    std::vector<Big> wide(d);
    for (const std::uint32_t i : runs.beyond) {
        const std::int64_t weight = weights.empty() ? 1 : weights[i];
        const T* x = rows.data + i * d;
        double top = 0.0;
        for (std::size_t j = 0; j < d; ++j)
            top = std::max(top, std::fabs(static_cast<double>(x[j]) * tables.inverse[j]));
        if (top < kWhole && tables.tiny.empty()) {
            one_by_one(i, weight);
            continue;
        }
        for (std::size_t j = 0; j < d; ++j) {
            const double value = static_cast<double>(x[j]);
            const Big steps = quantizer ? nearest_step(value, quantizer->exponent[j]) : Big::of_whole(value);
            wide[j] = steps - Big::of_whole(tables.origin[j]);
        }
        sums.add_row(wide, Big(weight));
    }
}

std::vector<double> largest_of(std::span<const double> rows, std::size_t d) {
    std::vector<double> largest(d, 0.0);
    for (std::size_t i = 0; i < rows.size(); i += d)
        for (std::size_t j = 0; j < d; ++j) largest[j] = std::max(largest[j], std::fabs(rows[i + j]));
    return largest;
}

// Groups the pending rows from number `first` on by weight.
Runs pending_runs(const ExactBlock& block, std::size_t first, std::size_t d) {
    Runs runs;
    for (auto i = static_cast<std::uint32_t>(first); i < block.weights.size(); ++i) {
        const double* row = block.rows.data() + i * d;
        const bool near = std::all_of(row, row + d, [](double v) { return std::fabs(v) <= kTwoDigits; });
        (near ? runs.by_weight[block.weights[i]] : runs.beyond).push_back(i);
    }
    return runs;
}

void fold_pending(Triangle& sums, const ExactBlock& block, const Runs& runs, std::size_t d, unsigned n_threads) {
    const StepTables tables(d);  // pending rows are already integers
    fold<double>(sums, {block.rows.data(), block.weights.size(), d}, runs, block.weights, tables, nullptr,
                 largest_of(block.rows, d), n_threads);
}

// Adds one pending row. The update is atomic.
void add_pending(Triangle& sums, const ExactBlock& block, std::size_t i, std::size_t d) {
    std::vector<std::int64_t> row(d);
    for (std::size_t j = 0; j < d; ++j) row[j] = static_cast<std::int64_t>(block.rows[i * d + j]);
    sums.add_row(row, block.weights[i]);
}

constexpr std::size_t kMaxRowsOneByOne = 8;  // up to this number of rows, unshared sums are updated row by row

// Adds the pending rows from number `first` on to unshared sums in one atomic call of add_products().
// Returns false, without changes, if the rows would need several calls.
bool fold_in_place(Triangle& sums, const ExactBlock& block, std::size_t first, std::size_t d, unsigned n_threads) {
    const Runs runs = pending_runs(block, first, d);
    if (runs.by_weight.size() != 1 || !runs.beyond.empty() || std::abs(runs.by_weight.begin()->first) > kLongWeight)
        return false;
    fold_pending(sums, block, runs, d, n_threads);
    return true;
}

Big pending_count(const ExactBlock& block) {
    int128 sum = 0;
    for (const std::int64_t weight : block.weights) sum += weight;
    return Big::of(sum);
}

// Returns whether the sums of this block can be the sums of any rows.
// Sums of squares must not be negative, and n * sum(v^2) >= sum(v)^2 must hold (Cauchy-Schwarz).
// Features into which values with coarser steps were merged are skipped: such values have larger rounding errors.
bool is_plausible(const ExactBlock& block, std::size_t d, const Quantizer& quantizer) {
    const Big n = count_of(block);
    const std::size_t pending = block.weights.size();
    for (std::size_t j = 0; j < d; ++j) {
        if (quantizer.mixed[j]) continue;
        Big sum = block.sums->get(d, j), squares = block.sums->get(j, j);
        for (std::size_t i = 0; i < pending; ++i) {
            const auto v = static_cast<std::int64_t>(block.rows[i * d + j]);
            const Big product = Big::of(static_cast<int128>(block.weights[i]) * v);
            sum = sum + product;
            squares = squares + product * Big(v);
        }
        if (squares.is_negative() || n * squares < sum * sum) return false;
    }
    return true;
}

}  // namespace

ExactBlock& mutable_block(std::shared_ptr<ExactBlock>& block) {
    if (!block)
        block = std::make_shared<ExactBlock>();
    else if (block.use_count() > 1)
        block = std::make_shared<ExactBlock>(*block);
    block->partial_sums.reset();
    return *block;
}

std::shared_ptr<Triangle> copy_sums(const ExactBlock& block, std::size_t d) {
    return block.sums ? std::make_shared<Triangle>(*block.sums) : std::make_shared<Triangle>(d + 1);
}

void fold_pending(Triangle& sums, const ExactBlock& block, std::size_t d, unsigned n_threads) {
    if (!block.weights.empty()) fold_pending(sums, block, pending_runs(block, 0, d), d, n_threads);
}

void fold_pending(ExactBlock& block, std::size_t d, unsigned n_threads) {
    if (block.weights.empty() && block.sums) return;
    auto sums = copy_sums(block, d);
    fold_pending(*sums, block, d, n_threads);
    block.sums = std::move(sums);
    block.rows.clear();
    block.weights.clear();
}

void form_sums(std::shared_ptr<ExactBlock>& slot, std::size_t d, unsigned n_threads) {
    if (slot->formed()) return;
    if (slot.use_count() > 1) slot = std::make_shared<ExactBlock>(*slot);
    ExactBlock& block = *slot;
    const std::size_t n = block.weights.size();
    if (block.sums) {
        if (block.sums.use_count() > 1) return fold_pending(block, d, n_threads);
        Triangle& sums = *std::const_pointer_cast<Triangle>(block.sums);
        if (n > kMaxRowsOneByOne) {
            if (!fold_in_place(sums, block, 0, d, n_threads)) return fold_pending(block, d, n_threads);
            block.rows.clear();
            block.weights.clear();
            return;
        }
        while (!block.weights.empty()) {  // process one row at a time, so that an exception leaves a consistent block
            add_pending(sums, block, block.weights.size() - 1, d);
            block.weights.pop_back();
            block.rows.resize(block.weights.size() * d);
        }
        return;
    }
    if (block.partial_sums && block.partial_sums.use_count() == 1) {
        Triangle& partial_sums = *std::const_pointer_cast<Triangle>(block.partial_sums);
        if (n <= block.n_partial + kMaxRowsOneByOne) {
            for (; block.n_partial < n; ++block.n_partial) add_pending(partial_sums, block, block.n_partial, d);
            return;
        }
        if (fold_in_place(partial_sums, block, block.n_partial, d, n_threads)) {
            block.n_partial = n;
            return;
        }
    }
    auto partial_sums = std::make_shared<Triangle>(d + 1);
    fold_pending(*partial_sums, block, d, n_threads);
    block.partial_sums = std::move(partial_sums);
    block.n_partial = n;
}

bool may_stay_pending(const ExactBlock* block, std::size_t n, std::size_t d) {
    const std::size_t most = capacity(d);
    if (!block) return n <= most;
    return n <= (block->sums ? most / 2 : most - std::min(most, block->weights.size()));
}

template <class T>
void append_pending(ExactBlock& block, Rows<T> rows, std::span<const std::uint32_t> index,
                    std::span<const std::int64_t> weights, Steps steps) {
    const std::size_t d = rows.n_features, before = block.weights.size();
    block.rows.resize((before + index.size()) * d);
    block.weights.resize(before + index.size());
    for (std::size_t k = 0; k < index.size(); ++k) {
        count_row(rows.data + index[k] * d, d, steps, block.rows.data() + (before + k) * d);
        block.weights[before + k] = weights.empty() ? 1 : weights[index[k]];
    }
}

template <class T>
void place(ExactBlock& block, Rows<T> rows, const std::vector<std::uint32_t>& index,
           std::span<const std::int64_t> weights, const StepTables& tables, const Quantizer& quantizer,
           const ScanResult& found, unsigned n_threads) {
    const std::size_t d = rows.n_features;
    const bool any_beyond =
        std::any_of(index.begin(), index.end(), [&](std::uint32_t i) { return found.beyond[i] != 0; });
    if (!any_beyond && may_stay_pending(&block, index.size(), d)) {
        if (block.weights.size() + index.size() > capacity(d)) fold_pending(block, d, n_threads);
        append_pending(block, rows, index, weights, tables.steps());
        return;
    }
    Runs runs;
    if (weights.empty() && !any_beyond)
        runs.by_weight[1] = index;
    else
        for (const std::uint32_t i : index)
            (found.beyond[i] ? runs.beyond : runs.by_weight[weights.empty() ? 1 : weights[i]]).push_back(i);
    auto sums = copy_sums(block, d);
    fold(*sums, rows, runs, weights, tables, &quantizer, found.largest, n_threads);
    sums->shrink();
    block.sums = std::move(sums);
}

template <class T>
void add_beyond(Triangle& sums, Rows<T> rows, std::uint32_t row, const StepTables& tables, const Quantizer& quantizer) {
    Runs runs;
    runs.beyond.push_back(row);
    fold(sums, rows, runs, {}, tables, &quantizer, {}, 1);
}

std::int64_t cancel(const std::vector<double>& rows, std::vector<std::int64_t>& weights, const double* row,
                    std::size_t d, std::int64_t weight, const std::vector<std::int32_t>* slots, std::int32_t slot,
                    std::span<const std::uint8_t> mixed) {
    const auto same = [&](const double* other) {
        for (std::size_t j = 0; j < d; ++j)
            if (row[j] != other[j] &&
                (mixed.empty() || !mixed[j] || std::fabs(row[j] - other[j]) > std::ldexp(1.0, mixed[j])))
                return false;
        return true;
    };
    for (std::size_t i = weights.size(); weight > 0 && i-- > 0;) {
        if (weights[i] <= 0 || (slots && (*slots)[i] != slot) || !same(rows.data() + i * d)) continue;
        const std::int64_t taken = std::min(weight, weights[i]);
        weights[i] -= taken;
        weight -= taken;
    }
    return weight;
}

void drop_zero_weights(std::vector<double>& rows, std::vector<std::int64_t>& weights, std::vector<std::int32_t>* slots,
                       std::size_t d) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
        if (weights[i] == 0) continue;
        if (kept != i) {
            std::copy_n(rows.data() + i * d, d, rows.data() + kept * d);
            weights[kept] = weights[i];
            if (slots) (*slots)[kept] = (*slots)[i];
        }
        ++kept;
    }
    rows.resize(kept * d);
    weights.resize(kept);
    if (slots) slots->resize(kept);
}

Big count_of(const ExactBlock& block) {
    const Big pending = pending_count(block);
    return block.sums ? block.sums->count() + pending : pending;
}

bool finish_removal(std::shared_ptr<ExactBlock>& slot, std::size_t d, const Quantizer& quantizer, unsigned n_threads) {
    ExactBlock& block = *slot;
    const Big n = count_of(block);
    if (n.sign() < 0) return false;
    if (n.is_zero()) {
        if (!block.sums && block.weights.empty()) {
            slot.reset();
            return true;
        }
        fold_pending(block, d, n_threads);
        for (std::size_t a = 0, at = 0; a <= d; ++a)
            for (std::size_t b = 0; b <= a; ++b, ++at) {
                const bool certain = (a == d || !quantizer.mixed[a]) && (b == d || !quantizer.mixed[b]);
                if (certain && !block.sums->get(at).is_zero()) return false;
            }
        slot.reset();
        return true;
    }
    return !block.sums || is_plausible(block, d, quantizer);
}

void merge_block(std::shared_ptr<ExactBlock>& mine, const ExactBlock& theirs, int sign, std::size_t d,
                 unsigned n_threads) {
    ExactBlock& block = mutable_block(mine);
    if (theirs.sums) {
        // Unshared sums need no copy, because add() reserves memory before it changes anything.
        auto sums = block.sums.use_count() == 1 ? std::const_pointer_cast<Triangle>(block.sums) : copy_sums(block, d);
        sums->add(*theirs.sums, sign);
        sums->shrink();
        block.sums = std::move(sums);
    }
    std::vector<std::int64_t> weights = theirs.weights;
    for (std::int64_t& weight : weights) weight *= sign;
    if (sign < 0 && !block.sums)
        for (std::size_t i = 0; i < weights.size(); ++i)
            if (weights[i] < 0)
                weights[i] = -cancel(block.rows, block.weights, theirs.rows.data() + i * d, d, -weights[i], nullptr, 0);
    block.rows.insert(block.rows.end(), theirs.rows.begin(), theirs.rows.end());
    block.weights.insert(block.weights.end(), weights.begin(), weights.end());
    drop_zero_weights(block.rows, block.weights, nullptr, d);
    if (block.weights.size() > capacity(d)) fold_pending(block, d, n_threads);
}

#define STEELYARD_EXACT(T)                                                                                            \
    template void append_pending(ExactBlock&, Rows<T>, std::span<const std::uint32_t>, std::span<const std::int64_t>, \
                                 Steps);                                                                              \
    template void place(ExactBlock&, Rows<T>, const std::vector<std::uint32_t>&, std::span<const std::int64_t>,       \
                        const StepTables&, const Quantizer&, const ScanResult&, unsigned);                            \
    template void add_beyond(Triangle&, Rows<T>, std::uint32_t, const StepTables&, const Quantizer&);
STEELYARD_EXACT(double)
STEELYARD_EXACT(float)
#undef STEELYARD_EXACT

}  // namespace steelyard
