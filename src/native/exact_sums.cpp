#include "steelyard/exact_sums.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "steelyard/gram.hpp"
#include "steelyard/simd.hpp"

namespace steelyard {

namespace {

constexpr int kFinest = -1000;  // exponents below have no reciprocal among the doubles
constexpr int kCoarsest = 1000;
constexpr int kResolution = 33;  // a typical deviation has at least 2^33 quanta
constexpr double kWhole = 0x1p53;
constexpr std::int64_t kLongWeight = 1 << 28;  // beyond, rows are added one by one

const GramLoops& gram_loops() { return loops().gram; }

void count_row(const double* x, std::size_t d, Steps steps, double* out) { gram_loops().count_f64(x, d, steps, out); }
void count_row(const float* x, std::size_t d, Steps steps, double* out) { gram_loops().count_f32(x, d, steps, out); }

std::size_t capacity(std::size_t d) { return std::max<std::size_t>(64, (d + 1) / 2); }

int exponent_of(double x) {  // floor(log2 |x|) of a number other than 0
    int exponent;
    std::frexp(x, &exponent);
    return exponent - 1;
}

int lowest_bit(double x) {  // of a number other than 0
    int exponent;
    const auto mantissa = static_cast<std::uint64_t>(std::fabs(std::ldexp(std::frexp(x, &exponent), 53)));
    return exponent - 53 + std::countr_zero(mantissa);
}

// Quanta are powers of 16 where values are rounded: similar rows in several places settle the same ones.
int coarse(int exponent) { return exponent >= 0 ? exponent / 4 * 4 : -((3 - exponent) / 4 * 4); }

// The quantum that a feature gets when values like this deviate from an origin.
int wanted_exponent(double deviation, double origin) {
    int wanted = coarse(exponent_of(deviation) - kResolution);
    if (origin != 0.0) wanted = std::max(wanted, exponent_of(origin) - 52);
    return std::clamp(wanted, kFinest, kCoarsest);
}

// The nearest whole number of quanta, halves upwards, of any finite value.
Big quanta_of(double x, int exponent) {
    if (x == 0.0) return Big(0);
    int e;
    const Big mantissa(static_cast<std::int64_t>(std::ldexp(std::frexp(x, &e), 53)));
    const int shift = e - 53 - exponent;
    if (shift >= 0) return mantissa << static_cast<unsigned>(shift);
    if (shift < -64) return Big(0);
    return ((mantissa >> static_cast<unsigned>(-shift - 1)) + Big(1)) >> 1;
}

struct StepTables {
    std::vector<double> inverse;
    std::vector<double> origin;
    explicit StepTables(const ExactGrid& grid) : inverse(grid.exponent.size()), origin(grid.origin) {
        for (std::size_t j = 0; j < inverse.size(); ++j) inverse[j] = std::ldexp(1.0, -grid.exponent[j]);
    }
    explicit StepTables(std::size_t d) : inverse(d, 1.0), origin(d, 0.0) {}  // for whole numbers
    Steps steps() const { return {inverse.data(), origin.data()}; }
};

// A block that may be changed: a copy where others hold it too.
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
        if (top < kWhole) {
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

// -- weights ------------------------------------------------------------------------------------------

void refine_weights(ExactState& state, unsigned shift) {
    if (shift == 0) return;
    const std::vector<unsigned> none(state.n_features, 0);
    for (auto& slot : state.slots) {
        if (!slot) continue;
        ExactBlock& block = own(slot);
        for (std::int64_t& weight : block.weights) weight <<= shift;
        if (block.sums) {
            auto sums = own_sums(block, state.n_features);
            sums->refine(none, shift);
            block.sums = std::move(sums);
        }
    }
    for (std::int64_t& weight : state.early.weights) weight <<= shift;
    state.weight_exponent -= static_cast<int>(shift);
}

// Weights in the state's steps, which become finer if a weight is not whole. Empty: all are 1 and so is a step.
std::vector<std::int64_t> steps_of(ExactState& state, std::span<const double> weights, std::size_t n, int sign) {
    bool fractions = false;
    for (const double w : weights) {
        if (!(std::fabs(w) <= kLargestWeight)) throw BadValues("weights must be finite and at most 2^40");
        fractions |= w != std::floor(w);
    }
    if (fractions && state.weight_exponent == 0) refine_weights(state, kFractions);
    if (weights.empty() && state.weight_exponent == 0 && sign > 0) return {};
    const double scale = std::ldexp(1.0, -state.weight_exponent);
    std::vector<std::int64_t> steps(n);
    for (std::size_t i = 0; i < n; ++i)
        steps[i] = sign * static_cast<std::int64_t>(std::floor((weights.empty() ? 1.0 : weights[i]) * scale + 0.5));
    return steps;
}

// -- the grid -----------------------------------------------------------------------------------------

void settle_feature(ExactGrid& grid, std::size_t j, std::vector<double>& values, bool at_zero) {
    // Each value once: a row that comes twice and one that counts twice settle the same grid.
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    const double middle = values[(values.size() - 1) / 2];
    int lowest = kCoarsest;
    std::vector<double> deviations;
    for (const double x : values) {
        if (x != 0.0) lowest = std::min(lowest, lowest_bit(x));
        if (x != middle) deviations.push_back(std::fabs(x - middle));
    }
    lowest = std::max(lowest, kFinest);
    if (lowest == kCoarsest) lowest = 0;  // nothing but zeros
    int exponent = lowest;
    if (!deviations.empty()) {
        std::nth_element(deviations.begin(), deviations.begin() + deviations.size() / 2, deviations.end());
        const double typical = deviations[deviations.size() / 2];
        const int wanted = std::isfinite(typical) ? wanted_exponent(typical, middle) : 960;
        grid.rounds[j] = lowest < wanted;
        exponent = std::max(lowest, wanted);
        if (lowest >= wanted) exponent = lowest;
    }
    grid.exponent[j] = exponent;
    double top = 0.0;
    for (const double x : {values.front(), values.back()}) top = std::max(top, std::fabs(std::ldexp(x, -exponent)));
    const Big origin = quanta_of(middle, exponent);
    grid.origin[j] = at_zero || top < 0x1p19 || origin.bit_length() > 53 ? 0.0 : origin.scaled(0);
}

ExactGrid empty_grid(std::size_t d) {
    return {std::vector<std::int32_t>(d, 0), std::vector<double>(d, 0.0), std::vector<std::uint8_t>(d, 0),
            std::vector<std::uint8_t>(d, 0)};
}

// The grid of the first rows; value(i, j) is theirs.
template <class Value>
ExactGrid settled_grid(std::size_t n, std::size_t d, bool at_zero, Value&& value) {
    ExactGrid grid = empty_grid(d);
    std::vector<double> values;
    for (std::size_t j = 0; j < d; ++j) {
        values.clear();
        for (std::size_t i = 0; i < n; ++i) values.push_back(value(i, j));
        settle_feature(grid, j, values, at_zero);
    }
    return grid;
}

// Makes quanta finer; what has been learned stays the same, in more of them.
void refine_grid(ExactState& state, std::span<const std::int32_t> exponents, unsigned n_threads) {
    const std::size_t d = state.n_features;
    std::vector<unsigned> shifts(d);
    std::vector<double> factors(d);
    for (std::size_t j = 0; j < d; ++j) {
        shifts[j] = static_cast<unsigned>(state.grid.exponent[j] - exponents[j]);
        factors[j] = std::ldexp(1.0, static_cast<int>(shifts[j]));
    }
    // An origin that is no whole double any more becomes zero, before the quanta change.
    std::vector<Big> back(d);
    bool far = false;
    for (std::size_t j = 0; j < d; ++j)
        if (std::fabs(state.grid.origin[j]) * factors[j] >= kWhole) {
            back[j] = -Big::of_whole(state.grid.origin[j]);
            state.grid.origin[j] = 0.0;
            far = true;
        }
    for (auto& slot : state.slots) {
        if (!slot) continue;
        ExactBlock& block = own(slot);
        const auto too_large = [&](std::size_t i) { return std::fabs(block.rows[i]) * factors[i % d] >= kTwoDigits; };
        bool fits = !far;
        for (std::size_t i = 0; fits && i < block.rows.size(); ++i) fits = !too_large(i);
        if (!fits) fold_waiting(block, d, n_threads);
        for (std::size_t i = 0; i < block.rows.size(); ++i) block.rows[i] *= factors[i % d];
        if (block.sums) {
            auto sums = own_sums(block, d);
            sums->translate(back);
            sums->refine(shifts, 0);
            block.sums = std::move(sums);
        }
    }
    for (std::size_t j = 0; j < d; ++j) {
        state.grid.origin[j] *= factors[j];
        state.grid.exponent[j] = exponents[j];
    }
}

// Gives features that do not round the quanta that these rows need, row after row; whether anything changed.
template <class T>
bool refine_for(ExactState& state, Rows<T> rows, std::span<const double> remainder, unsigned n_threads) {
    std::vector<std::int32_t> exponents = state.grid.exponent;
    bool changed = false;
    for (std::size_t j = 0; j < state.n_features; ++j) {
        if (state.grid.rounds[j] || remainder[j] == 0.0) continue;
        const double origin = std::ldexp(state.grid.origin[j], state.grid.exponent[j]);
        for (std::size_t i = 0; i < rows.n_rows && !state.grid.rounds[j]; ++i) {
            const double x = static_cast<double>(rows.data[i * state.n_features + j]);
            if (x == 0.0 || !std::isfinite(x)) continue;
            const int lowest = std::max(lowest_bit(x), kFinest);
            if (lowest >= exponents[j]) continue;
            const double deviation = x - origin;
            const int wanted = wanted_exponent(deviation != 0.0 && std::isfinite(deviation) ? deviation : x, origin);
            state.grid.rounds[j] = lowest < wanted;
            exponents[j] = std::min(exponents[j], std::max(lowest, wanted));
            changed = true;
        }
    }
    if (changed) refine_grid(state, exponents, n_threads);
    return changed;
}

// -- rows ---------------------------------------------------------------------------------------------

struct Found {
    std::vector<double> largest, remainder;
    std::vector<std::uint8_t> beyond;
};

template <class T>
Found scan(Rows<T> rows, const StepTables& tables, unsigned n_threads) {
    Found found{std::vector<double>(rows.n_features, 0.0), std::vector<double>(rows.n_features, 0.0),
                std::vector<std::uint8_t>(rows.n_rows)};
    scan_rows(rows, tables.steps(), found.largest, found.remainder, found.beyond, n_threads);
    return found;
}

template <class T>
void check_finite(Rows<T> rows, std::span<const std::uint8_t> suspects = {}) {
    for (std::size_t i = 0; i < rows.n_rows; ++i) {
        if (!suspects.empty() && !suspects[i]) continue;
        for (std::size_t j = 0; j < rows.n_features; ++j)
            if (!(std::fabs(static_cast<double>(rows.data[i * rows.n_features + j])) <= kLargestValue))
                throw BadValues("values must be finite and at most 1e75");
    }
}

// Whether values beyond the limit could have few quanta.
bool is_coarse(const ExactGrid& grid) {
    return std::any_of(grid.exponent.begin(), grid.exponent.end(), [](std::int32_t e) { return e > 150; });
}

// Rows of each slot, in order.
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

// Puts rows of one class where they belong: among the waiting ones, or into the sums at once.
template <class T>
void place(ExactBlock& block, Rows<T> rows, const std::vector<std::uint32_t>& index,
           std::span<const std::int64_t> weights, const StepTables& tables, const ExactGrid& grid, const Found& found,
           unsigned n_threads) {
    const std::size_t d = rows.n_features, most = capacity(d);
    const bool any_beyond =
        std::any_of(index.begin(), index.end(), [&](std::uint32_t i) { return found.beyond[i] != 0; });
    const std::size_t room = block.sums ? most / 2 : most - std::min(most, block.weights.size());
    if (!any_beyond && index.size() <= room) {
        if (block.weights.size() + index.size() > most) fold_waiting(block, d, n_threads);
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
    block.sums = std::move(sums);
}

// Adds rows to a settled state that nobody else sees yet.
template <class T>
void add_settled(ExactState& state, Rows<T> rows, std::span<const std::int32_t> slots,
                 std::span<const std::int64_t> weights, unsigned n_threads) {
    std::optional<StepTables> tables(state.grid);
    Found found = scan(rows, *tables, n_threads);
    check_finite(rows, is_coarse(state.grid) ? std::span<const std::uint8_t>{} : found.beyond);
    if (refine_for(state, rows, found.remainder, n_threads)) {
        tables.emplace(state.grid);
        found = scan(rows, *tables, n_threads);
    }
    for (const auto& [slot, index] : by_slot(slots, weights))
        place(own(state.slots[static_cast<std::size_t>(slot)]), rows, index, weights, *tables, state.grid, found,
              n_threads);
}

void make_slots(ExactState& state, std::span<const std::int32_t> slots) {
    std::int32_t most = -1;
    for (const std::int32_t slot : slots) most = std::max(most, slot);
    if (state.slots.size() < static_cast<std::size_t>(most + 1)) state.slots.resize(static_cast<std::size_t>(most + 1));
}

void settle_by(ExactState& state, const ExactGrid& grid, unsigned n_threads) {
    state.grid = grid;
    state.is_settled = true;
    const EarlyRows early = std::move(state.early);
    state.early = {};
    make_slots(state, early.slots);
    if (!early.slots.empty())
        add_settled<double>(state, {early.rows.data(), early.slots.size(), state.n_features}, early.slots,
                            early.weights, n_threads);
}

// Rows that come before there is a grid wait as they are; with enough of them there is one.
template <class T>
void add_unsettled(ExactState& state, Rows<T> rows, std::span<const std::int32_t> slots,
                   std::span<const std::int64_t> weights, bool sparse, unsigned n_threads) {
    check_finite(rows);
    EarlyRows& early = state.early;
    early.sparse |= sparse;
    const std::size_t d = state.n_features;
    if (early.slots.size() + slots.size() < kSettlingRows) {
        for (std::size_t i = 0; i < slots.size(); ++i) {
            if (slots[i] < 0 || (!weights.empty() && weights[i] == 0)) continue;
            early.rows.insert(early.rows.end(), rows.data + i * d, rows.data + (i + 1) * d);
            early.slots.push_back(slots[i]);
            early.weights.push_back(weights.empty() ? 1 : weights[i]);
        }
        return;
    }
    const std::size_t before = std::min(kSettlingRows, early.slots.size());
    const ExactGrid grid = settled_grid(kSettlingRows, d, early.sparse, [&](std::size_t i, std::size_t j) {
        return i < before ? early.rows[i * d + j] : static_cast<double>(rows.data[(i - before) * d + j]);
    });
    settle_by(state, grid, n_threads);
    add_settled(state, rows, slots, weights, n_threads);
}

constexpr std::size_t kMostWaiting = 512;

// Rows that only need a place to wait in: nothing is copied, and nothing can fail after the first change.
template <class T>
bool add_in_place(ExactState& state, const ExactBatch<T>& batch) {
    const std::size_t d = state.n_features, n = batch.slots.size();
    if (!state.is_settled || n > kMostWaiting || !batch.weights.empty() || state.weight_exponent != 0) return false;
    std::vector<std::size_t> coming(state.slots.size(), 0);
    for (const std::int32_t slot : batch.slots) {
        if (slot < 0 || static_cast<std::size_t>(slot) >= state.slots.size()) return false;
        const auto& block = state.slots[static_cast<std::size_t>(slot)];
        if (!block || block.use_count() > 1 ||
            block->weights.size() + ++coming[static_cast<std::size_t>(slot)] > capacity(d))
            return false;
    }
    const StepTables tables(state.grid);
    const Found found = scan(batch.rows, tables, 1);
    if (is_coarse(state.grid)) return false;
    for (std::size_t i = 0; i < n; ++i)
        if (found.beyond[i]) return false;
    for (std::size_t j = 0; j < d; ++j)
        if (found.remainder[j] != 0.0 && !state.grid.rounds[j]) return false;
    for (const std::int32_t slot : batch.slots) {
        ExactBlock& block = *state.slots[static_cast<std::size_t>(slot)];
        const std::size_t needed = block.weights.size() + coming[static_cast<std::size_t>(slot)];
        if (block.weights.capacity() >= needed && block.rows.capacity() >= needed * d) continue;
        const std::size_t room = std::min(capacity(d), std::max(needed, 2 * block.weights.capacity()));
        block.rows.reserve(room * d);
        block.weights.reserve(room);
    }
    for (std::uint32_t i = 0; i < n; ++i)
        wait(*state.slots[static_cast<std::size_t>(batch.slots[i])], batch.rows, {&i, 1}, {}, tables.steps());
    return true;
}

// -- taking out ---------------------------------------------------------------------------------------

// Takes weight off equal rows, from the newest back; what found no partner is left.
std::int64_t cancel(const std::vector<double>& rows, std::vector<std::int64_t>& weights, const double* row,
                    std::size_t d, std::int64_t weight, const std::vector<std::int32_t>* slots, std::int32_t slot,
                    std::span<const std::uint8_t> mixed = {}) {
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

Big waiting_count(const ExactBlock& block) {
    Big count(0);
    int128 sum = 0;
    for (const std::int64_t weight : block.weights) sum += weight;
    return count + Big::of(sum);
}

Big count_of(const ExactBlock& block) {
    const Big waiting = waiting_count(block);
    return block.sums ? block.sums->count() + waiting : waiting;
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

// A class that lost rows: refused if they were never here, gone if none is left.
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

Removal never_learned(std::int32_t slot) { return {Refusal::never_learned, slot, 0.0, 0.0}; }

// Compares what is to leave with what is here, class by class.
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

// Takes rows out of a state that nobody else sees yet.
template <class T>
Removal remove_from(ExactState& state, Rows<T> rows, std::span<const std::int32_t> slots,
                    std::span<const std::int64_t> weights, unsigned n_threads) {
    const std::size_t d = state.n_features;
    const auto weight_of = [&](std::size_t i) { return weights.empty() ? std::int64_t{1} : weights[i]; };
    const Removal refused = check_enough(state, slots, weights);
    if (refused.refusal != Refusal::none) return refused;
    std::vector<double> row(d);
    if (!state.is_settled) {
        check_finite(rows);
        EarlyRows& early = state.early;
        for (std::size_t i = 0; i < slots.size(); ++i) {
            if (slots[i] < 0) continue;
            std::copy_n(rows.data + i * d, d, row.data());
            if (cancel(early.rows, early.weights, row.data(), d, weight_of(i), &early.slots, slots[i]) > 0)
                return never_learned(slots[i]);
        }
        drop_weightless(early.rows, early.weights, &early.slots, d);
        return {};
    }
    const StepTables tables(state.grid);
    const Found found = scan(rows, tables, n_threads);
    check_finite(rows, is_coarse(state.grid) ? std::span<const std::uint8_t>{} : found.beyond);
    // Where no value was ever rounded, one that would be has never been learned.
    for (std::size_t j = 0; j < d; ++j) {
        if (state.grid.rounds[j] || state.grid.mixed[j] || found.remainder[j] == 0.0) continue;
        for (std::size_t i = 0; i < rows.n_rows; ++i) {
            const double x = static_cast<double>(rows.data[i * d + j]);
            if (x != 0.0 && slots[i] >= 0 && std::max(lowest_bit(x), kFinest) < state.grid.exponent[j])
                return never_learned(slots[i]);
        }
    }
    std::vector<std::int64_t> negative(slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i) negative[i] = -weight_of(i);
    for (const auto& [slot, index] : by_slot(slots, weights)) {
        auto& held = state.slots[static_cast<std::size_t>(slot)];
        ExactBlock& block = own(held);
        if (!block.sums) {  // the class is kept as its rows: each must be among them
            for (const std::uint32_t i : index) {
                if (found.beyond[i]) return never_learned(slot);
                count_row(rows.data + i * d, d, tables.steps(), row.data());
                if (cancel(block.rows, block.weights, row.data(), d, weight_of(i), nullptr, slot, state.grid.mixed) > 0)
                    return never_learned(slot);
            }
            drop_weightless(block.rows, block.weights, nullptr, d);
        } else {
            place(block, rows, index, negative, tables, state.grid, found, n_threads);
        }
        if (!settle_loss(held, d, state.grid, n_threads)) return never_learned(slot);
    }
    return {};
}

template <class Index>
std::vector<double> dense(const SparseBatch<Index>& batch, std::size_t begin, std::size_t end, std::size_t d) {
    std::vector<double> rows((end - begin) * d, 0.0);
    for (std::size_t i = begin; i < end; ++i)
        for (auto k = batch.row_starts[i]; k < batch.row_starts[i + 1]; ++k)
            rows[(i - begin) * d + static_cast<std::size_t>(batch.columns[static_cast<std::size_t>(k)])] =
                batch.values[static_cast<std::size_t>(k)];
    return rows;
}

// Zeros add nothing where zero is the origin, so only products of what is stored are formed.
template <class Index>
void fold_sparse(ExactState& state, const SparseBatch<Index>& batch, std::span<const std::int64_t> weights) {
    const std::size_t d = state.n_features;
    std::vector<double> needed(d, 0.0);
    for (std::size_t k = 0; k < batch.values.size(); ++k) {
        const double x = batch.values[k];
        if (!(std::fabs(x) <= kLargestValue)) throw BadValues("values must be finite and at most 1e75");
        const auto j = static_cast<std::size_t>(batch.columns[k]);
        if (x != 0.0 && !state.grid.rounds[j] && std::max(lowest_bit(x), kFinest) < state.grid.exponent[j])
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
        ExactBlock& block = own(state.slots[static_cast<std::size_t>(slot)]);
        auto sums = own_sums(block, d);
        std::vector<std::size_t> columns;
        std::vector<Big> v;
        for (const std::uint32_t i : index) {
            columns.clear();
            v.clear();
            unsigned top = 1;
            for (auto k = batch.row_starts[i]; k < batch.row_starts[i + 1]; ++k) {
                const auto j = static_cast<std::size_t>(batch.columns[static_cast<std::size_t>(k)]);
                columns.push_back(j);
                v.push_back(quanta_of(batch.values[static_cast<std::size_t>(k)], state.grid.exponent[j]));
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

bool at_zero(const ExactGrid& grid) {
    return std::all_of(grid.origin.begin(), grid.origin.end(), [](double o) { return o == 0.0; });
}

// -- merging ------------------------------------------------------------------------------------------

// Adds a block that is on the same grid.
void join(std::shared_ptr<ExactBlock>& mine, const ExactBlock& theirs, int sign, std::size_t d, unsigned n_threads) {
    ExactBlock& block = own(mine);
    if (theirs.sums) {
        // Sums that nobody else holds need no copy; adding changes nothing before it has room.
        auto sums = block.sums.use_count() == 1 ? std::const_pointer_cast<Triangle>(block.sums) : own_sums(block, d);
        sums->add(*theirs.sums, sign);
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

// Brings a settled state to a grid whose quanta are not coarser than its own.
void bring_to(ExactState& state, const ExactGrid& grid, int weight_exponent, unsigned n_threads) {
    refine_weights(state, static_cast<unsigned>(state.weight_exponent - weight_exponent));
    refine_grid(state, grid.exponent, n_threads);
    std::vector<Big> by(state.n_features);
    bool moves = false;
    for (std::size_t j = 0; j < by.size(); ++j) {
        by[j] = Big::of_whole(grid.origin[j]) - Big::of_whole(state.grid.origin[j]);
        moves |= !by[j].is_zero();
    }
    if (moves)
        for (auto& slot : state.slots) {
            if (!slot) continue;
            ExactBlock& block = own(slot);
            bool near = true;
            const std::size_t d = state.n_features;
            for (std::size_t i = 0; near && i < block.rows.size(); ++i)
                near = by[i % d].bit_length() < 52 &&
                       std::fabs(block.rows[i] - static_cast<double>(by[i % d].narrow())) <= kTwoDigits;
            if (!near) fold_waiting(block, d, n_threads);
            for (std::size_t i = 0; i < block.rows.size(); ++i)
                block.rows[i] -= static_cast<double>(by[i % d].narrow());
            if (block.sums) {
                auto sums = own_sums(block, d);
                sums->translate(by);
                block.sums = std::move(sums);
            }
        }
    state.grid = grid;
}

// The grid on which both can be kept, with the origin of the first where it stays whole.
ExactGrid common_grid(const ExactGrid& a, const ExactGrid& b) {
    ExactGrid grid = a;
    for (std::size_t j = 0; j < a.exponent.size(); ++j) {
        const std::int32_t finest = std::min(a.exponent[j], b.exponent[j]);
        const auto coarser = [&](const ExactGrid& g) {  // by how many bits values may have been rounded more
            return g.rounds[j] || g.mixed[j] ? g.exponent[j] + g.mixed[j] - finest : 0;
        };
        grid.mixed[j] = static_cast<std::uint8_t>(std::min(255, std::max(coarser(a), coarser(b))));
        grid.rounds[j] = a.rounds[j] || b.rounds[j];
        grid.exponent[j] = finest;
        const double origin = std::ldexp(a.origin[j], a.exponent[j] - finest);
        grid.origin[j] = std::fabs(origin) < kWhole ? origin : 0.0;
    }
    return grid;
}

}  // namespace

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

template <class T>
void add_rows(ExactState& state, const ExactBatch<T>& batch, unsigned n_threads) {
    if (add_in_place(state, batch)) return;
    ExactState next = state;
    make_slots(next, batch.slots);
    const std::vector<std::int64_t> weights = steps_of(next, batch.weights, batch.slots.size(), 1);
    if (next.is_settled)
        add_settled(next, batch.rows, batch.slots, weights, n_threads);
    else
        add_unsettled(next, batch.rows, batch.slots, weights, false, n_threads);
    state = std::move(next);
}

template <class T>
Removal remove_rows(ExactState& state, const ExactBatch<T>& batch, unsigned n_threads) {
    ExactState next = state;
    make_slots(next, batch.slots);
    const std::vector<std::int64_t> weights = steps_of(next, batch.weights, batch.slots.size(), 1);
    const Removal removal = remove_from(next, batch.rows, batch.slots, weights, n_threads);
    if (removal.refusal == Refusal::none) state = std::move(next);
    return removal;
}

template <class Index>
void add_rows(ExactState& state, const SparseBatch<Index>& batch) {
    ExactState next = state;
    make_slots(next, batch.slots);
    const std::vector<std::int64_t> weights = steps_of(next, batch.weights, batch.slots.size(), 1);
    if (!next.is_settled) {
        const std::size_t n = std::min(batch.slots.size(), kSettlingRows);
        if (next.early.slots.size() + batch.slots.size() < kSettlingRows) {
            const std::vector<double> rows = dense(batch, 0, n, next.n_features);
            add_unsettled<double>(next, {rows.data(), n, next.n_features}, batch.slots, weights, true, 1);
            state = std::move(next);
            return;
        }
        next.early.sparse = true;
        const std::vector<double> rows = dense(batch, 0, n, next.n_features);
        check_finite<double>({rows.data(), n, next.n_features});
        const std::size_t d = next.n_features, before = std::min(kSettlingRows, next.early.slots.size());
        const EarlyRows& early = next.early;
        const ExactGrid grid = settled_grid(kSettlingRows, d, true, [&](std::size_t i, std::size_t j) {
            return i < before ? early.rows[i * d + j] : rows[(i - before) * d + j];
        });
        settle_by(next, grid, 1);
    }
    if (at_zero(next.grid)) {
        fold_sparse(next, batch, weights);
    } else {
        ExactState apart = next;
        for (auto& slot : apart.slots) slot.reset();
        std::fill(apart.grid.origin.begin(), apart.grid.origin.end(), 0.0);
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
    const std::vector<std::int64_t> weights = steps_of(next, batch.weights, batch.slots.size(), 1);
    const Removal refused = check_enough(next, batch.slots, weights);
    if (refused.refusal != Refusal::none) return refused;
    bool dense_way = !next.is_settled;
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
    apart.is_settled = true;
    apart.grid = next.grid;
    std::fill(apart.grid.origin.begin(), apart.grid.origin.end(), 0.0);
    fold_sparse(apart, batch, weights);
    std::vector<std::int32_t> places(apart.slots.size());
    std::iota(places.begin(), places.end(), 0);
    const Removal removal = merge(next, apart, places, -1, true, 1);
    if (removal.refusal == Refusal::none) state = std::move(next);
    return removal;
}

Removal merge(ExactState& state, const ExactState& other, std::span<const std::int32_t> places, int sign, bool checked,
              unsigned n_threads) {
    ExactState next = state;
    make_slots(next, places);
    if (checked)
        for (std::size_t s = 0; s < places.size(); ++s) {
            if (places[s] < 0) continue;
            const Big theirs = count_of(other, s), mine = count_of(state, static_cast<std::size_t>(places[s]));
            const int finest = std::min(state.weight_exponent, other.weight_exponent);
            if (mine << static_cast<unsigned>(state.weight_exponent - finest) <
                theirs << static_cast<unsigned>(other.weight_exponent - finest))
                return {Refusal::too_many, places[s], theirs.scaled(other.weight_exponent),
                        mine.scaled(state.weight_exponent)};
        }
    ExactState theirs = other;
    const int finest = std::min(next.weight_exponent, theirs.weight_exponent);
    refine_weights(next, static_cast<unsigned>(next.weight_exponent - finest));
    refine_weights(theirs, static_cast<unsigned>(theirs.weight_exponent - finest));
    if (!theirs.is_settled) {
        EarlyRows& early = theirs.early;
        for (std::int32_t& slot : early.slots) slot = places[static_cast<std::size_t>(slot)];
        const Rows<double> rows{early.rows.data(), early.slots.size(), next.n_features};
        if (sign < 0 && checked) {
            const Removal removal = remove_from(next, rows, early.slots, early.weights, n_threads);
            if (removal.refusal != Refusal::none) return removal;
        } else {
            if (sign < 0)
                for (std::size_t i = 0; i < early.weights.size(); ++i) {
                    std::int64_t left = early.weights[i];
                    if (!next.is_settled && early.slots[i] >= 0)
                        left = cancel(next.early.rows, next.early.weights, early.rows.data() + i * next.n_features,
                                      next.n_features, left, &next.early.slots, early.slots[i]);
                    early.weights[i] = -left;
                }
            drop_weightless(next.early.rows, next.early.weights, &next.early.slots, next.n_features);
            if (next.is_settled)
                add_settled(next, rows, early.slots, early.weights, n_threads);
            else
                add_unsettled(next, rows, early.slots, early.weights, early.sparse, n_threads);
            if (sign < 0)
                for (auto& slot : next.slots)
                    if (slot && count_of(*slot).is_zero())
                        settle_loss((own(slot), slot), next.n_features, next.grid, n_threads);
        }
        state = std::move(next);
        return {};
    }
    if (!next.is_settled) settle_by(next, theirs.grid, n_threads);
    const ExactGrid grid = common_grid(next.grid, theirs.grid);
    bring_to(next, grid, finest, n_threads);
    bring_to(theirs, grid, finest, n_threads);
    for (std::size_t s = 0; s < theirs.slots.size(); ++s) {
        if (!theirs.slots[s] || places[s] < 0) continue;
        auto& mine = next.slots[static_cast<std::size_t>(places[s])];
        join(mine, *theirs.slots[s], sign, next.n_features, n_threads);
        if (sign < 0) {
            if (checked && !mine->sums &&
                std::any_of(mine->weights.begin(), mine->weights.end(), [](std::int64_t w) { return w < 0; }))
                return never_learned(places[s]);
            const bool possible = settle_loss(mine, next.n_features, next.grid, n_threads);
            if (checked && !possible) return never_learned(places[s]);
        }
    }
    state = std::move(next);
    return {};
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
            join(place, *state.slots[s], 1, state.n_features, n_threads);
    }
    EarlyRows& early = result.early;
    for (std::size_t i = 0; i < early.slots.size(); ++i) {
        early.slots[i] = places[static_cast<std::size_t>(early.slots[i])];
        if (early.slots[i] < 0) early.weights[i] = 0;
    }
    drop_weightless(early.rows, early.weights, &early.slots, state.n_features);
    return result;
}

ExactState rearranged(const ExactState& state, std::span<const std::int64_t> from) {
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
        if (slot->sums) moved->sums = std::make_shared<Triangle>(slot->sums->rearranged(from));
        slot = std::move(moved);
    }
    if (state.is_settled) {
        result.grid = empty_grid(n);
        for (std::size_t j = 0; j < n; ++j) {
            if (from[j] < 0) continue;
            const auto old = static_cast<std::size_t>(from[j]);
            result.grid.exponent[j] = state.grid.exponent[old];
            result.grid.origin[j] = state.grid.origin[old];
            result.grid.rounds[j] = state.grid.rounds[old];
            result.grid.mixed[j] = state.grid.mixed[old];
        }
    }
    return result;
}

void fold_all(ExactState& state, unsigned n_threads) {
    ExactState next = state;
    if (!next.is_settled) settle(next, n_threads);
    for (auto& slot : next.slots)
        if (slot) fold_waiting(own(slot), next.n_features, n_threads);
    state = std::move(next);
}

void fade(ExactState& state, double factor, unsigned n_threads) {
    ExactState next = state;
    if (next.weight_exponent == 0) refine_weights(next, kFractions);
    const auto faded = [&](std::vector<std::int64_t>& weights) {
        for (std::int64_t& weight : weights) {
            const double product = static_cast<double>(weight) * factor;
            if (!(std::fabs(product) < 0x1p62)) throw std::overflow_error("the weights would grow beyond 2^40");
            weight = static_cast<std::int64_t>(std::floor(product + 0.5));
        }
    };
    const std::size_t d = next.n_features;
    faded(next.early.weights);
    drop_weightless(next.early.rows, next.early.weights, &next.early.slots, d);
    for (auto& slot : next.slots) {
        if (!slot) continue;
        ExactBlock& block = own(slot);
        if (block.sums) {
            fold_waiting(block, d, n_threads);
            auto sums = own_sums(block, d);
            sums->fade(factor);
            if (sums->count().is_zero())
                slot.reset();
            else
                block.sums = std::move(sums);
            continue;
        }
        faded(block.weights);
        drop_weightless(block.rows, block.weights, nullptr, d);
        if (block.weights.empty()) slot.reset();
    }
    state = std::move(next);
}

void settle(ExactState& state, unsigned n_threads) {
    if (state.is_settled || state.early.slots.empty()) return;
    ExactState next = state;
    const EarlyRows& early = next.early;
    const std::size_t d = next.n_features;
    const ExactGrid grid = settled_grid(std::min(kSettlingRows, early.slots.size()), d, early.sparse,
                                        [&](std::size_t i, std::size_t j) { return early.rows[i * d + j]; });
    settle_by(next, grid, n_threads);
    state = std::move(next);
}

void settle(ExactState& state, const ExactGrid& grid) {
    ExactState next = state;
    settle_by(next, grid, 1);
    state = std::move(next);
}

void make_ready(ExactState& state, std::span<const std::int32_t> slots, unsigned n_threads) {
    if (!state.is_settled) return;
    for (const std::int32_t slot : slots)
        if (static_cast<std::size_t>(slot) < state.slots.size() && state.slots[static_cast<std::size_t>(slot)])
            make_ready(state.slots[static_cast<std::size_t>(slot)], state.n_features, n_threads);
}

Triangle folded(const ExactState& state, std::span<const std::int32_t> slots, unsigned n_threads) {
    const std::size_t d = state.n_features;
    std::optional<Triangle> total;
    const auto add = [&](const Triangle& sums) {
        if (total)
            total->add(sums, 1);
        else
            total = sums;
    };
    ExactBlock waiting;
    for (const std::int32_t slot : slots) {
        const auto& block = state.slots[static_cast<std::size_t>(slot)];
        if (!block) continue;
        if (const Triangle* all = block->ready()) {
            add(*all);
            continue;
        }
        if (block->sums) add(*block->sums);
        waiting.rows.insert(waiting.rows.end(), block->rows.begin(), block->rows.end());
        waiting.weights.insert(waiting.weights.end(), block->weights.begin(), block->weights.end());
    }
    if (!total) total.emplace(d + 1);
    fold_waiting(*total, waiting, d, n_threads);
    return *std::move(total);
}

#define STEELYARD_EXACT(T)                                               \
    template void add_rows(ExactState&, const ExactBatch<T>&, unsigned); \
    template Removal remove_rows(ExactState&, const ExactBatch<T>&, unsigned);
STEELYARD_EXACT(double)
STEELYARD_EXACT(float)
#undef STEELYARD_EXACT
#define STEELYARD_EXACT(Index)                                      \
    template void add_rows(ExactState&, const SparseBatch<Index>&); \
    template Removal remove_rows(ExactState&, const SparseBatch<Index>&);
STEELYARD_EXACT(std::int32_t)
STEELYARD_EXACT(std::int64_t)
#undef STEELYARD_EXACT

}  // namespace steelyard
