// Logistic function, log-loss and their sums, bit-identical at every SIMD level; see loops_logistic.hpp.
// The functions are those of common/portable_math.hpp: the same operations in the same order, none of them fused.
#pragma once

#include "functions.hpp"
#include "simd/loops_logistic.hpp"
#include "vectors.hpp"

namespace steelyard::STEELYARD_LEVEL {

STEELYARD_ALWAYS_INLINE static inline VecD exp_of_negative(VecD x) {
    typedef Lane<double> L;
    constexpr double largest = 708.0;
    x = x < largest ? x : broadcast(largest);
    const VecD magic = broadcast(L::round_to_int);
    const VecD shifted = rounded(x * 1.4426950408889634) + magic;
    const VecD n = shifted - magic;
    const VecD r = (rounded(n * L::ln2_high) - x) + rounded(n * L::ln2_low);
    VecD e = broadcast(inverse_factorial<double>(13));
    STEELYARD_UNROLL(16)
    for (int k = 12; k >= 0; --k) e = rounded(e * r) + inverse_factorial<double>(k);
    const L::IntVec exponent = L::bias - ((L::IntVec)shifted - (L::IntVec)magic);
    return rounded(e * (VecD)(exponent << L::mantissa_bits));
}

STEELYARD_ALWAYS_INLINE static inline VecD logistic(VecD x) {
    const VecD e = exp_of_negative(absolute<double>(x));
    return (x < 0.0 ? e : broadcast(1.0)) / (1.0 + e);
}

STEELYARD_ALWAYS_INLINE static inline VecD doubled_atanh(VecD s) {
    const VecD square = rounded(s * s);
    VecD sum = broadcast(1.0 / 21.0);
    STEELYARD_UNROLL(16)
    for (int k = 19; k > 0; k -= 2) sum = rounded(sum * square) + 1.0 / k;
    return rounded(2.0 * (s * sum));
}

STEELYARD_ALWAYS_INLINE static inline VecD log_loss(VecD x) {
    const VecD u = exp_of_negative(absolute<double>(x));
    const Lane<double>::IntVec is_large = u > 0.41421356237309503;
    const VecD s = (is_large ? u - 1.0 : u) / (u + (is_large ? broadcast(3.0) : broadcast(2.0)));
    const VecD log = (is_large ? broadcast(0.6931471805599453) : VecD{}) + doubled_atanh(s);
    return log + (x < 0.0 ? -x : VecD{});
}

// Replaces each value by a function of it. The last values are copied to a full vector first.
template <VecD (*Function)(VecD)>
static void replace_by(double* values, size_t n) {
    size_t i = 0;
    for (; i + kDoubles <= n; i += kDoubles) store(values + i, Function(load(values + i)));
    if (i == n) return;
    double last[kDoubles] = {};
    std::memcpy(last, values + i, (n - i) * sizeof(double));
    store(last, Function(load(last)));
    std::memcpy(values + i, last, (n - i) * sizeof(double));
}

// Every level adds rows in groups of this size, so that the order of the additions is the same.
constexpr size_t kSumRows = 8;
constexpr size_t kSumVectors = kSumRows / kDoubles;

// The five sums of LogisticSums, with one partial sum per row of a group.
struct LogisticPartialSums {
    VecD values[5][kSumVectors] = {};

    // Adds one group of rows; `mask` is 1 for rows that count, else 0.
    STEELYARD_ALWAYS_INLINE void add(const double* x, const double* mask, double slope, double bias, double target) {
        for (size_t v = 0; v < kSumVectors; ++v) {
            const VecD row = load(x + v * kDoubles), counts = load(mask + v * kDoubles);
            const VecD p = logistic(rounded(row * slope) + bias);
            const VecD error = rounded((p - target) * counts), h = rounded(rounded(p * (1.0 - p)) * counts);
            const VecD h_x = rounded(h * row);
            values[0][v] += error;
            values[1][v] += rounded(error * row);
            values[2][v] += h;
            values[3][v] += h_x;
            values[4][v] += rounded(h_x * row);
        }
    }

    double total(size_t which) const {
        double lanes[kSumRows];
        for (size_t v = 0; v < kSumVectors; ++v) store(lanes + v * kDoubles, values[which][v]);
        return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
    }
};

static LogisticSums logistic_sums(const double* x, size_t n, double slope, double bias, double target) {
    constexpr double all[kSumRows] = {1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0};
    LogisticPartialSums sums;
    size_t i = 0;
    for (; i + kSumRows <= n; i += kSumRows) sums.add(x + i, all, slope, bias, target);
    if (i < n) {
        double last[kSumRows] = {}, mask[kSumRows] = {};
        std::memcpy(last, x + i, (n - i) * sizeof(double));
        std::memcpy(mask, all, (n - i) * sizeof(double));
        sums.add(last, mask, slope, bias, target);
    }
    return {sums.total(0), sums.total(1), sums.total(2), sums.total(3), sums.total(4)};
}

constexpr LogisticLoops logistic_loops{replace_by<logistic>, replace_by<log_loss>, logistic_sums};

}  // namespace steelyard::STEELYARD_LEVEL
