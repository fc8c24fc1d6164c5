// The loops of loops_online.hpp. Selection compares similarities as integers of the same order: the k-th largest
// is found by halving an interval of integers, which costs the same for every k and needs no sorting.
#pragma once

#include "functions.hpp"
#include "steelyard/loops_online.hpp"

namespace steelyard::STEELYARD_LEVEL {

typedef Lane<double>::IntVec VecI;

constexpr std::int64_t kNoKey = INT64_MIN;

static void gather(const double* values, const std::uint32_t* index, double* out, size_t n) {
    for (size_t j = 0; j < n; ++j) out[j] = values[index[j]];
}

// Integers in the order of the numbers; -0 and 0 are the same. Smaller integers than kNoKey + 1 do not occur.
[[gnu::always_inline]] static inline VecI ordered_keys(VecD x) {
    const VecI bits = (VecI)(x + 0.0);
    return bits ^ ((bits >> 63) & INT64_MAX);
}

[[gnu::always_inline]] static inline VecI load_keys(const std::int64_t* p) {
    VecI v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

// The lanes moved round by `Shift`: combining a vector with itself moved by 1, 2, 4 puts the result of all lanes in
// each.
template <size_t Shift>
[[gnu::always_inline]] static inline VecI rotated(VecI v) {
    VecI from;
#pragma GCC unroll 8
    for (size_t lane = 0; lane < kDoubles; ++lane) from[lane] = static_cast<std::int64_t>((lane + Shift) % kDoubles);
    return __builtin_shuffle(v, from);
}

[[gnu::always_inline]] static inline VecI smaller(VecI a, VecI b) { return a < b ? a : b; }
[[gnu::always_inline]] static inline VecI larger(VecI a, VecI b) { return a > b ? a : b; }
[[gnu::always_inline]] static inline VecI sum(VecI a, VecI b) { return a + b; }

template <VecI (*Combine)(VecI, VecI)>
[[gnu::always_inline]] static inline std::int64_t over_lanes(VecI v) {
    if (kDoubles > 4) v = Combine(v, rotated<4>(v));
    if (kDoubles > 2) v = Combine(v, rotated<2>(v));
    return Combine(v, rotated<1>(v))[0];
}

struct KeyRange {
    size_t count;  // keys that are not kNoKey
    std::int64_t low, high;
};

// Up to a whole vector of numbers, zeros where there are none.
[[gnu::always_inline]] static inline VecD load_some(const double* p, size_t n) {
    if (n >= kDoubles) return load(p);
    VecD v = {};
    for (size_t j = 0; j < n; ++j) v[j] = p[j];
    return v;
}

// Losses, and the keys of those that are positive. `keys` is filled up to a whole vector with kNoKey.
static KeyRange mark_violators(const ViolatorQuery& q) {
    VecI counts = {}, lowest = INT64_MAX - VecI{}, highest = kNoKey - VecI{};
    for (size_t j = 0; j < q.n; j += kDoubles) {
        const size_t here = q.n - j;
        VecD loss = load_some(q.scores + j, here) * q.slope + q.base;
        for (size_t lane = here; lane < kDoubles; ++lane) loss[lane] = 0.0;
        store_some<double>(q.losses + j, loss, here);
        const VecI violates = loss > VecD{};
        const VecI keys = ordered_keys(load_some(q.similarities + j, here));
        const VecI marked = violates ? keys : kNoKey - VecI{};
        std::memcpy(q.keys + j, &marked, sizeof marked);
        counts -= violates;
        highest = larger(marked, highest);
        lowest = smaller(violates ? keys : INT64_MAX - VecI{}, lowest);
    }
    return {static_cast<size_t>(over_lanes<sum>(counts)), over_lanes<smaller>(lowest), over_lanes<larger>(highest)};
}

// How many keys lie at or above each of three bounds.
struct Counts {
    size_t of[3];
};

static Counts count_from(const std::int64_t* keys, size_t n, const std::int64_t (&bounds)[3]) {
    VecI counts[3] = {};
    for (size_t j = 0; j < n; j += kDoubles) {
        const VecI here = load_keys(keys + j);
        for (size_t b = 0; b < 3; ++b) counts[b] -= here >= bounds[b] - VecI{};
    }
    Counts totals;
    for (size_t b = 0; b < 3; ++b) totals.of[b] = static_cast<size_t>(over_lanes<sum>(counts[b]));
    return totals;
}

// Taken are all keys from `bound` on, and the first `ties` of those just below it.
struct Cut {
    std::int64_t bound;
    size_t ties;
};

[[gnu::always_inline]] static inline std::int64_t middle_of(std::int64_t a, std::int64_t b) {
    return (a >> 1) + (b >> 1) + (a & b & 1);
}

// The cut that takes `most` of the keys, which are more. Each pass quarters the interval: three counts cost hardly
// more than one, since a pass is mostly waiting for its sum.
static Cut cut_keys(const std::int64_t* keys, size_t n, const KeyRange& range, size_t most) {
    // Always: more than `most` keys from `low` on, at most `most` from `high` on.
    std::int64_t low = range.low, high = range.high + 1;
    size_t above = 0;
    while (high - 1 > low && above != most) {
        const std::int64_t middle = middle_of(low, high);
        const std::int64_t bounds[3] = {middle_of(low, middle), middle, middle_of(middle, high)};
        const Counts counts = count_from(keys, n, bounds);
        for (size_t b = 0; b < 3; ++b) low = counts.of[b] > most && bounds[b] > low ? bounds[b] : low;
        for (size_t b = 3; b-- > 0;) {
            const bool closer = counts.of[b] <= most && bounds[b] > low && bounds[b] < high;
            high = closer ? bounds[b] : high;
            above = closer ? counts.of[b] : above;
        }
    }
    return {high, most - above};
}

static size_t violators(const ViolatorQuery& q) {
    const KeyRange range = mark_violators(q);
    const Cut cut = range.count > q.most ? cut_keys(q.keys, q.n, range, q.most) : Cut{kNoKey + 1, 0};
    size_t taken = 0;
    if (cut.ties == 0) {
        for (size_t j = 0; j < q.n; ++j) {
            q.chosen[taken] = static_cast<std::uint32_t>(j);
            taken += q.keys[j] >= cut.bound;
        }
        return taken;
    }
    for (size_t j = 0, ties = cut.ties; j < q.n; ++j) {
        const bool tie = ties > 0 && q.keys[j] == cut.bound - 1;
        if (q.keys[j] >= cut.bound || tie) q.chosen[taken++] = static_cast<std::uint32_t>(j);
        ties -= tie;
    }
    return taken;
}

// As many columns as there are registers to sum them in, so that every row is read once and in one go.
template <size_t Columns>
static void add_columns(const double* const* rows, const double* factors, size_t n_rows, double* target, size_t j) {
    VecD sums[Columns];
#pragma GCC unroll 16
    for (size_t c = 0; c < Columns; ++c) sums[c] = load(target + j + c * kDoubles);
    for (size_t r = 0; r < n_rows; ++r) {
        const double* row = rows[r] + j;
        const VecD factor = broadcast(factors[r]);
#pragma GCC unroll 16
        for (size_t c = 0; c < Columns; ++c) sums[c] += load(row + c * kDoubles) * factor;
    }
#pragma GCC unroll 16
    for (size_t c = 0; c < Columns; ++c) store(target + j + c * kDoubles, sums[c]);
}

static void add_rows(const double* const* rows, const double* factors, size_t n_rows, double* target, size_t n) {
    constexpr size_t most = STEELYARD_VECTOR_BYTES == 64 ? 13 : 8;
    size_t j = 0;
    for (; j + (most - 1) * kDoubles < n; j += most * kDoubles) add_columns<most>(rows, factors, n_rows, target, j);
    for (; j + 3 * kDoubles < n; j += 4 * kDoubles) add_columns<4>(rows, factors, n_rows, target, j);
    for (; j < n; j += kDoubles) add_columns<1>(rows, factors, n_rows, target, j);
}

static size_t argmax(const double* values, size_t n) {
    double largest = values[0];
    size_t first = 0, j = 1;
    if (n >= kDoubles) {
        VecD best = load(values);
        VecI where = {};  // in which step each lane found its best
        for (j = kDoubles; j + kDoubles <= n; j += kDoubles) {
            const VecD next = load(values + j);
            where = next > best ? static_cast<std::int64_t>(j) - VecI{} : where;
            best = next > best ? next : best;
        }
        for (size_t lane = 0; lane < kDoubles; ++lane) {
            const size_t position = static_cast<size_t>(where[lane]) + lane;
            if (best[lane] > largest || (best[lane] == largest && position < first)) {
                largest = best[lane];
                first = position;
            }
        }
    }
    for (; j < n; ++j)
        if (values[j] > largest) {
            largest = values[j];
            first = j;
        }
    return first;
}

constexpr OnlineLoops online_loops{gather, violators, add_rows, argmax};

}  // namespace steelyard::STEELYARD_LEVEL
