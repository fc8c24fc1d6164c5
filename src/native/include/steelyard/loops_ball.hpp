// The hot loops of enclosing bodies: one step of the solver over all heights, and the nearest of many bodies.
#pragma once

#include <cstddef>

namespace steelyard {

struct NearLeast {
    std::size_t count;
    std::size_t at;  // where, if it is one; otherwise it means nothing
};

struct BallLoops {
    // heights[k] -= factor * (row_i[k] - row_j[k]) for k < n. Returns the first position of the largest
    // heights[k] - closed[k], closed being 0 or infinity. n is at least 1.
    std::size_t (*move)(double* heights, const double* row_i, const double* row_j, double factor, const double* closed,
                        std::size_t n);
    // How many a[k] * b[k], k < n, are at most `factor` times the least. None is below 0; n is at least 1.
    NearLeast (*near_least)(const double* a, const double* b, double factor, std::size_t n);
};

}  // namespace steelyard
