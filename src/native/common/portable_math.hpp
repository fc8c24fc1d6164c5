// Elementary functions that round identically on every machine, if the including file is compiled without contraction.
// The functions of the C library and of NumPy differ in the last bits between versions and processors.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace steelyard {

constexpr double kLog2 = 0.6931471805599453;

// Returns 2 atanh(s) = log((1 + s) / (1 - s)) for |s| < 0.172, accurate to the last bits.
inline double doubled_atanh(double s) {
    const double square = s * s;
    double sum = 1.0 / 21.0;
    sum = sum * square + 1.0 / 19.0;
    sum = sum * square + 1.0 / 17.0;
    sum = sum * square + 1.0 / 15.0;
    sum = sum * square + 1.0 / 13.0;
    sum = sum * square + 1.0 / 11.0;
    sum = sum * square + 1.0 / 9.0;
    sum = sum * square + 1.0 / 7.0;
    sum = sum * square + 1.0 / 5.0;
    sum = sum * square + 1.0 / 3.0;
    sum = sum * square + 1.0;
    return 2.0 * (s * sum);
}

// Returns log(x) for positive x: log(m 2^k) = k log(2) + 2 atanh(s) with s = (m - 1) / (m + 1).
inline double portable_log(double x) {
    int k = 0;
    double m = std::frexp(x, &k);
    if (m < 0.7071067811865476) m *= 2.0, --k;
    return k * kLog2 + doubled_atanh((m - 1.0) / (m + 1.0));
}

// Returns log(1 + u) for 0 <= u <= 1. The loop around it can be vectorized.
inline double log_of_one_plus(double u) {
    const bool is_large = u > 0.41421356237309503;  // then log(1 + u) = log(2) + log((1 + u) / 2)
    const double s = (is_large ? u - 1.0 : u) / (u + (is_large ? 3.0 : 2.0));
    return (is_large ? kLog2 : 0.0) + doubled_atanh(s);
}

// Returns e^-x for x >= 0, at least e^-708. The loop around it can be vectorized.
inline double exp_of_negative(double x) {
    constexpr double round_to_int = 0x1.8p52;  // adding this constant rounds a number to an integer in the low bits
    x = x < 708.0 ? x : 708.0;
    const double shifted = x * 1.4426950408889634 + round_to_int, n = shifted - round_to_int;
    // e^-x = 2^-n e^r with |r| <= log(2) / 2. The first factor has trailing zero bits, so its product is exact.
    const double r = (n * 0x1.62e42feep-1 - x) + n * 0x1.a39ef35793c76p-33;
    double e = 1.0 / 6227020800.0;
    e = e * r + 1.0 / 479001600.0;
    e = e * r + 1.0 / 39916800.0;
    e = e * r + 1.0 / 3628800.0;
    e = e * r + 1.0 / 362880.0;
    e = e * r + 1.0 / 40320.0;
    e = e * r + 1.0 / 5040.0;
    e = e * r + 1.0 / 720.0;
    e = e * r + 1.0 / 120.0;
    e = e * r + 1.0 / 24.0;
    e = e * r + 1.0 / 6.0;
    e = e * r + 0.5;
    e = e * r + 1.0;
    e = e * r + 1.0;
    const std::uint64_t exponent =
        1023 - (std::bit_cast<std::uint64_t>(shifted) - std::bit_cast<std::uint64_t>(round_to_int));
    return e * std::bit_cast<double>(exponent << 52);
}

// Returns 1 / (1 + e^-x). The loop around it can be vectorized.
inline double portable_logistic(double x) {
    const double e = exp_of_negative(std::abs(x));
    return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

// Returns log(1 + e^-x), the log-loss of a positive row with log-odds x. The loop around it can be vectorized.
inline double portable_log_loss(double x) {
    return log_of_one_plus(exp_of_negative(std::abs(x))) + (x < 0.0 ? -x : 0.0);
}

}  // namespace steelyard
