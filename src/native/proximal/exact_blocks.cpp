#include "proximal/exact_blocks.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "proximal/gram.hpp"

namespace steelyard {

namespace {

constexpr std::int64_t kLongWeight = 1 << 28;  // beyond, rows are added one by one

// Rows by weight, each group to be summed at once; rows beyond the reach of digits come apart.
struct Runs {
    std::map<std::int64_t, std::vector<std::uint32_t>> by_weight;
    std::vector<std::uint32_t> beyond;
};

// Adds some rows, whatever their values and weights, to sums of products.
template <class T>
void fold(Triangle& sums, Rows<T> rows, const Runs& runs, std::span<const std::int64_t> weights,
          const StepTables& tables, const ExactGrid* grid, std::span<const double> largest, unsigned n_threads) {
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
            const Big quanta = grid ? quanta_of(value, grid->exponent[j]) : Big::of_whole(value);
            wide[j] = quanta - Big::of_whole(tables.origin[j]);
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

// Waiting rows from one on.
Runs waiting_runs(const ExactBlock& block, std::size_t first, std::size_t d) {
    Runs runs;
    for (auto i = static_cast<std::uint32_t>(first); i < block.weights.size(); ++i) {
        const double* row = block.rows.data() + i * d;
        const bool near = std::all_of(row, row + d, [](double v) { return std::fabs(v) <= kTwoDigits; });
        (near ? runs.by_weight[block.weights[i]] : runs.beyond).push_back(i);
    }
    return runs;
}

void fold_waiting(Triangle& sums, const ExactBlock& block, const Runs& runs, std::size_t d, unsigned n_threads) {
    const StepTables tables(d);  // waiting rows are whole numbers already
    fold<double>(sums, {block.rows.data(), block.weights.size(), d}, runs, block.weights, tables, nullptr,
                 largest_of(block.rows, d), n_threads);
}

// Adds one waiting row; nothing has changed if it throws.
void add_waiting(Triangle& sums, const ExactBlock& block, std::size_t i, std::size_t d) {
    std::vector<std::int64_t> row(d);
    for (std::size_t j = 0; j < d; ++j) row[j] = static_cast<std::int64_t>(block.rows[i * d + j]);
    sums.add_row(row, block.weights[i]);
}

constexpr std::size_t kFewRows = 8;  // are added one by one, where the sums are nobody else's

// Adds the waiting rows from one on to sums that nobody else holds, in one change that cannot fail half-way. False, and
// nothing has changed, if it would be several.
bool fold_in_place(Triangle& sums, const ExactBlock& block, std::size_t first, std::size_t d, unsigned n_threads) {
    const Runs runs = waiting_runs(block, first, d);
    if (runs.by_weight.size() != 1 || !runs.beyond.empty() || std::abs(runs.by_weight.begin()->first) > kLongWeight)
        return false;
    fold_waiting(sums, block, runs, d, n_threads);
    return true;
}

Big waiting_count(const ExactBlock& block) {
    int128 sum = 0;
    for (const std::int64_t weight : block.weights) sum += weight;
    return Big::of(sum);
}

// Whether some rows could have left these sums: a class without rows has none, squares are not negative, and no mean
// is farther out than the squares allow.
// Where values of coarser quanta were merged in, a row may have been rounded otherwise, and nothing is certain.
bool could_be(const ExactBlock& block, std::size_t d, const ExactGrid& grid) {
    const Big n = count_of(block);
    const std::size_t waiting = block.weights.size();
    for (std::size_t j = 0; j < d; ++j) {
        if (grid.mixed[j]) continue;
        Big sum = block.sums->get(d, j), squares = block.sums->get(j, j);
        for (std::size_t i = 0; i < waiting; ++i) {
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

ExactBlock& own(std::shared_ptr<ExactBlock>& block) {
    if (!block)
        block = std::make_shared<ExactBlock>();
    else if (block.use_count() > 1)
        block = std::make_shared<ExactBlock>(*block);
    block->seen.reset();
    return *block;
}

std::shared_ptr<Triangle> own_sums(const ExactBlock& block, std::size_t d) {
    return block.sums ? std::make_shared<Triangle>(*block.sums) : std::make_shared<Triangle>(d + 1);
}

void fold_waiting(Triangle& sums, const ExactBlock& block, std::size_t d, unsigned n_threads) {
    if (!block.weights.empty()) fold_waiting(sums, block, waiting_runs(block, 0, d), d, n_threads);
}

void fold_waiting(ExactBlock& block, std::size_t d, unsigned n_threads) {
    if (block.weights.empty() && block.sums) return;
    auto sums = own_sums(block, d);
    fold_waiting(*sums, block, d, n_threads);
    block.sums = std::move(sums);
    block.rows.clear();
    block.weights.clear();
}

void make_ready(std::shared_ptr<ExactBlock>& slot, std::size_t d, unsigned n_threads) {
    if (slot->ready()) return;
    if (slot.use_count() > 1) slot = std::make_shared<ExactBlock>(*slot);
    ExactBlock& block = *slot;
    const std::size_t n = block.weights.size();
    if (block.sums) {
        if (block.sums.use_count() > 1) return fold_waiting(block, d, n_threads);
        Triangle& sums = *std::const_pointer_cast<Triangle>(block.sums);
        if (n > kFewRows) {
            if (!fold_in_place(sums, block, 0, d, n_threads)) return fold_waiting(block, d, n_threads);
            block.rows.clear();
            block.weights.clear();
            return;
        }
        while (!block.weights.empty()) {  // row by row: between two of them all is whole
            add_waiting(sums, block, block.weights.size() - 1, d);
            block.weights.pop_back();
            block.rows.resize(block.weights.size() * d);
        }
        return;
    }
    if (block.seen && block.seen.use_count() == 1) {
        Triangle& seen = *std::const_pointer_cast<Triangle>(block.seen);
        if (n <= block.n_seen + kFewRows) {
            for (; block.n_seen < n; ++block.n_seen) add_waiting(seen, block, block.n_seen, d);
            return;
        }
        if (fold_in_place(seen, block, block.n_seen, d, n_threads)) {
            block.n_seen = n;
            return;
        }
    }
    auto seen = std::make_shared<Triangle>(d + 1);
    fold_waiting(*seen, block, d, n_threads);
    block.seen = std::move(seen);
    block.n_seen = n;
}

bool may_wait(const ExactBlock* block, std::size_t n, std::size_t d) {
    const std::size_t most = capacity(d);
    if (!block) return n <= most;
    return n <= (block->sums ? most / 2 : most - std::min(most, block->weights.size()));
}

template <class T>
void wait(ExactBlock& block, Rows<T> rows, std::span<const std::uint32_t> index, std::span<const std::int64_t> weights,
          Steps steps) {
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
           std::span<const std::int64_t> weights, const StepTables& tables, const ExactGrid& grid, const Found& found,
           unsigned n_threads) {
    const std::size_t d = rows.n_features;
    const bool any_beyond =
        std::any_of(index.begin(), index.end(), [&](std::uint32_t i) { return found.beyond[i] != 0; });
    if (!any_beyond && may_wait(&block, index.size(), d)) {
        if (block.weights.size() + index.size() > capacity(d)) fold_waiting(block, d, n_threads);
        wait(block, rows, index, weights, tables.steps());
        return;
    }
    Runs runs;
    if (weights.empty() && !any_beyond)
        runs.by_weight[1] = index;
    else
        for (const std::uint32_t i : index)
            (found.beyond[i] ? runs.beyond : runs.by_weight[weights.empty() ? 1 : weights[i]]).push_back(i);
    auto sums = own_sums(block, d);
    fold(*sums, rows, runs, weights, tables, &grid, found.largest, n_threads);
    sums->shrink();
    block.sums = std::move(sums);
}

template <class T>
void add_beyond(Triangle& sums, Rows<T> rows, std::uint32_t row, const StepTables& tables, const ExactGrid& grid) {
    Runs runs;
    runs.beyond.push_back(row);
    fold(sums, rows, runs, {}, tables, &grid, {}, 1);
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

void drop_weightless(std::vector<double>& rows, std::vector<std::int64_t>& weights, std::vector<std::int32_t>* slots,
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
    const Big waiting = waiting_count(block);
    return block.sums ? block.sums->count() + waiting : waiting;
}

bool settle_loss(std::shared_ptr<ExactBlock>& slot, std::size_t d, const ExactGrid& grid, unsigned n_threads) {
    ExactBlock& block = *slot;
    const Big n = count_of(block);
    if (n.sign() < 0) return false;
    if (n.is_zero()) {
        if (!block.sums && block.weights.empty()) {
            slot.reset();
            return true;
        }
        fold_waiting(block, d, n_threads);
        for (std::size_t a = 0, at = 0; a <= d; ++a)
            for (std::size_t b = 0; b <= a; ++b, ++at) {
                const bool certain = (a == d || !grid.mixed[a]) && (b == d || !grid.mixed[b]);
                if (certain && !block.sums->get(at).is_zero()) return false;
            }
        slot.reset();
        return true;
    }
    return !block.sums || could_be(block, d, grid);
}

void join(std::shared_ptr<ExactBlock>& mine, const ExactBlock& theirs, int sign, std::size_t d, unsigned n_threads) {
    ExactBlock& block = own(mine);
    if (theirs.sums) {
        // Sums that nobody else holds need no copy; adding changes nothing before it has room.
        auto sums = block.sums.use_count() == 1 ? std::const_pointer_cast<Triangle>(block.sums) : own_sums(block, d);
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
    drop_weightless(block.rows, block.weights, nullptr, d);
    if (block.weights.size() > capacity(d)) fold_waiting(block, d, n_threads);
}

#define STEELYARD_EXACT(T)                                                                                          \
    template void wait(ExactBlock&, Rows<T>, std::span<const std::uint32_t>, std::span<const std::int64_t>, Steps); \
    template void place(ExactBlock&, Rows<T>, const std::vector<std::uint32_t>&, std::span<const std::int64_t>,     \
                        const StepTables&, const ExactGrid&, const Found&, unsigned);                               \
    template void add_beyond(Triangle&, Rows<T>, std::uint32_t, const StepTables&, const ExactGrid&);
STEELYARD_EXACT(double)
STEELYARD_EXACT(float)
#undef STEELYARD_EXACT

}  // namespace steelyard
