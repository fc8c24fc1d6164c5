// Implementation of loops_online.hpp, except the selection, which is in select.hpp.
#pragma once

#include "select.hpp"
#include "simd/loops_online.hpp"

namespace steelyard::STEELYARD_LEVEL {

template <class Real>
static void gather(const Real* values, const std::uint32_t* index, Real* out, size_t n) {
    for (size_t j = 0; j < n; ++j) out[j] = values[index[j]];
}

// Adds rows to as many columns as fit in registers, so that every row is read once.
template <size_t Columns, class Real>
static void add_columns(const Real* const* rows, const Real* factors, size_t n_rows, Real* target, size_t j) {
    constexpr size_t width = kLanes<Real>;
    Vec<Real> sums[Columns];
    STEELYARD_UNROLL(16)
    for (size_t c = 0; c < Columns; ++c) sums[c] = load(target + j + c * width);
    for (size_t r = 0; r < n_rows; ++r) {
        const Real* row = rows[r] + j;
        const Vec<Real> factor = broadcast(factors[r]);
        STEELYARD_UNROLL(16)
        for (size_t c = 0; c < Columns; ++c) sums[c] += load(row + c * width) * factor;
    }
    STEELYARD_UNROLL(16)
    for (size_t c = 0; c < Columns; ++c) store(target + j + c * width, sums[c]);
}

template <class Real>
static void add_rows(const Real* const* rows, const Real* factors, size_t n_rows, Real* target, size_t n) {
    // With enough registers, a row of 100 numbers (the most common budget) is processed in one pass, else in two.
    constexpr size_t width = kLanes<Real>, most = 100 / width < 13 ? (99 + width) / width : width >= 4 ? 12 : 8;
    size_t j = 0;
    for (; j + (most - 1) * width < n; j += most * width) add_columns<most>(rows, factors, n_rows, target, j);
    for (; j + 3 * width < n; j += 4 * width) add_columns<4>(rows, factors, n_rows, target, j);
    for (; j < n; j += width) add_columns<1>(rows, factors, n_rows, target, j);
}

// Adds the products of one row with N rows of weights to N sums. Each sum has four independent chains of additions.
template <class Real, size_t N>
STEELYARD_ALWAYS_INLINE static inline void add_products(const Real* const (&weights)[N], const Real* row, size_t n,
                                                        Vec<Real> (&sums)[N][4]) {
    constexpr size_t width = kLanes<Real>;
    const auto add = [&](size_t c, size_t j) STEELYARD_INLINE_LAMBDA {
        const Vec<Real> numbers = load(row + j);
        STEELYARD_UNROLL(2)
        for (size_t w = 0; w < N; ++w) sums[w][c] += load(weights[w] + j) * numbers;
    };
    size_t j = 0;
    for (; j + 3 * width < n; j += 4 * width) {
        STEELYARD_UNROLL(4)
        for (size_t c = 0; c < 4; ++c) add(c, j + c * width);
    }
    // The chains are separate variables, because the compiler would store an array in memory instead of registers.
    if (j < n) add(0, j);
    if (j + width < n) add(1, j + width);
    if (j + 2 * width < n) add(2, j + 2 * width);
}

template <class Real>
STEELYARD_ALWAYS_INLINE static inline Real total(const Vec<Real> (&sums)[4]) {
    return over_lanes<Real, sum_of<Vec<Real>>>((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

template <class Real>
static Real dot_sides(const Real* a, const Real* b, size_t n, const Real* c, const Real* d, size_t m) {
    Vec<Real> sums[1][4] = {};
    add_products<Real, 1>({a}, b, n, sums);
    add_products<Real, 1>({c}, d, m, sums);
    return total<Real>(sums[0]);
}

template <class Real>
static void dot_sides_twice(TwoDots<Real>& q) {
    Vec<Real> sums[2][4] = {};
    add_products<Real, 2>({q.weights[0], q.weights[1]}, q.row, q.counts[0], sums);
    add_products<Real, 2>({q.weights[0] + q.apart, q.weights[1] + q.apart}, q.row + q.apart, q.counts[1], sums);
    q.products[0] = total<Real>(sums[0]);
    q.products[1] = total<Real>(sums[1]);
}

// Source lanes of a transposition step, which swaps the odd groups of `Width` lanes of a with the even groups of b.
template <class Real, size_t Width>
constexpr size_t exchanged_low(size_t lane) {
    return lane & Width ? kLanes<Real> + lane - Width : lane;
}
template <class Real, size_t Width>
constexpr size_t exchanged_high(size_t lane) {
    return lane & Width ? kLanes<Real> + lane : lane + Width;
}
template <class Real, size_t Width>
STEELYARD_ALWAYS_INLINE static inline void exchange(Vec<Real>& a, Vec<Real>& b) {
    const Vec<Real> first = a;
    a = shuffled<exchanged_low<Real, Width>>(first, b);
    b = shuffled<exchanged_high<Real, Width>>(first, b);
}

template <class Real, size_t Width>
STEELYARD_ALWAYS_INLINE static inline void exchange_all(Vec<Real> (&rows)[kLanes<Real>]) {
    if constexpr (Width < kLanes<Real>) {
        STEELYARD_UNROLL(16)
        for (size_t r = 0; r < kLanes<Real>; ++r)
            if ((r & Width) == 0) exchange<Real, Width>(rows[r], rows[r + Width]);
        exchange_all<Real, 2 * Width>(rows);
    }
}

template <class Real>
static void transpose(const Real* from, Real* to, size_t ld, size_t n) {
    constexpr size_t width = kLanes<Real>;
    for (size_t j = 0; j < n; j += width)
        for (size_t c = 0; c < kLineOf<Real>; c += width) {
            Vec<Real> rows[width];
            STEELYARD_UNROLL(16)
            for (size_t r = 0; r < width; ++r) rows[r] = load(from + (c + r) * ld + j);
            exchange_all<Real, 1>(rows);
            STEELYARD_UNROLL(16)
            for (size_t r = 0; r < width; ++r) store(to + (j + r) * ld + c, rows[r]);
        }
}

// Returns the position of the largest value.
// Values are compared as integers, so that subnormal numbers are distinguished in any floating-point mode.
template <class Real>
static size_t argmax_of_keys(const Real* values, size_t n) {
    size_t first = 0;
    Key<Real> largest = kNoKey<Real>;
    for (size_t j = 0; j < n; j += kLanes<Real>) {
        Key<Real> keys[kLanes<Real>];
        const IntVec<Real> ordered = ordered_keys<Real>(load(values + j));
        std::memcpy(keys, &ordered, sizeof keys);
        for (size_t lane = 0; lane < kLanes<Real> && j + lane < n; ++lane)
            if (keys[lane] > largest) {
                largest = keys[lane];
                first = j + lane;
            }
    }
    return first;
}

// Returns one bit per lane, set if a == b.
template <class Real>
STEELYARD_ALWAYS_INLINE static inline std::uint64_t bits_equal(Vec<Real> a, Vec<Real> b) {
#if defined(__AVX512F__)
    if constexpr (sizeof(Real) == 8)
        return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_EQ_OQ);
    else
        return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_EQ_OQ);
#else
    return lane_bits<Real>((IntVec<Real>)(a == b));
#endif
}

// Finds the first position of the maximum. With Add, it also computes target[j] += factor * values[j].
template <bool Add, class Real>
STEELYARD_ALWAYS_INLINE static inline size_t find_largest(const Real* values, size_t n, Real factor, Real* target) {
    constexpr size_t chains = 4, width = kLanes<Real>;
    typedef Vec<Real> V;
    const V first_value = broadcast(values[0]);
    V largest[chains] = {first_value, first_value, first_value, first_value};
    const auto visit = [&](size_t j) STEELYARD_INLINE_LAMBDA {
        const V here = load(values + j);
        if (Add) store(target + j, load(target + j) + here * factor);
        return here;
    };
    size_t j = 0;
    for (; j + chains * width <= n; j += chains * width) {
        STEELYARD_UNROLL(4)
        for (size_t c = 0; c < chains; ++c) largest[c] = larger_of(visit(j + c * width), largest[c]);
    }
    for (; j + width <= n; j += width) largest[0] = larger_of(visit(j), largest[0]);
    if (j < n) {  // lanes after the last value repeat the first value
        const auto in_range = positions_from<Real>(j) < all_lanes<Real>(static_cast<Key<Real>>(n));
        const V here = visit(j);
        largest[1] = larger_of(in_range ? here : first_value, largest[1]);
    }
    const V all = larger_of(larger_of(largest[1], largest[0]), larger_of(largest[3], largest[2]));
    const V bound = over_all_lanes<Real, larger_of<V>>(all);
    if (bound[0] == Real(0)) return argmax_of_keys(values, n);
    for (size_t first = 0;; first += 64) {  // terminates, because one value equals the maximum
        std::uint64_t found = 0;
        for (size_t at = first; at < n && at < first + 64; at += width)
            found |= bits_equal<Real>(load(values + at), bound) << (at - first);
        if (found) return first + static_cast<size_t>(lowest_bit(found));
    }
}

template <class Real>
static size_t argmax(const Real* values, size_t n) {
    return find_largest<false, Real>(values, n, Real(0), nullptr);
}

template <class Real>
static size_t add_and_argmax(const Real* row, Real factor, Real* target, size_t n) {
    return find_largest<true>(row, n, factor, target);
}

template <class Real>
constexpr OnlineLoopsOf<Real> online_loops_of{gather<Real>,    violators<Real>,       add_rows<Real>,
                                              dot_sides<Real>, dot_sides_twice<Real>, transpose<Real>,
                                              argmax<Real>,    add_and_argmax<Real>};
constexpr OnlineLoops online_loops{online_loops_of<double>, online_loops_of<float>};

}  // namespace steelyard::STEELYARD_LEVEL
