// The hot loops of enclosing bodies: one step of the solver over all heights, and the nearest of many bodies.
#pragma once

#include <cstddef>

namespace steelyard {

struct LeastProduct {
    double least, second;  // infinity where there is none
    std::size_t at;        // the first place of the least
};

struct BallLoops {
    // heights[k] -= factor * (row_i[k] - row_j[k]) for k < n. Returns the first position of the largest
    // heights[k] - closed[k], closed being 0 or infinity. n is at least 1.
    std::size_t (*move)(double* heights, const double* row_i, const double* row_j, double factor, const double* closed,
                        std::size_t n);
    // The two least a[k] * b[k] for k < n; n is at least 1.
    LeastProduct (*least_product)(const double* a, const double* b, std::size_t n);
};

}  // namespace steelyard
