// Hot loops of logistic regressions; results are bit-identical at every SIMD level.
#pragma once

#include <cstddef>

namespace steelyard {

// Sums over rows with z = slope * x + bias, p = 1 / (1 + e^-z) and h = p (1 - p).
struct LogisticSums {
    double error, error_x;  // sums of p - target and of (p - target) x
    double h, h_x, h_xx;    // sums of h, h x and h x^2
};

struct LogisticLoops {
    // values[i] = 1 / (1 + e^-values[i]), the value of portable_logistic().
    void (*logistic)(double* values, std::size_t n);
    // values[i] = log(1 + e^-values[i]), the value of portable_log_loss().
    void (*log_loss)(double* values, std::size_t n);
    LogisticSums (*sums)(const double* x, std::size_t n, double slope, double bias, double target);
};

}  // namespace steelyard
