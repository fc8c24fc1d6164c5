// Hot loops of enclosing bodies: one step of the solver over all heights, and the nearest of many bodies.
#pragma once

#include <cstddef>

namespace steelyard {

struct NearLeast {
    std::size_t count;
    std::size_t at;  // its position if there is one, else undefined
};

struct BallLoops {
    // heights[k] -= factor * (row_i[k] - row_j[k]) for k < n. Returns the first position of the largest
    // heights[k] - closed[k], closed being 0 or infinity. n is at least 1.
    std::size_t (*move)(double* heights, const double* row_i, const double* row_j, double factor, const double* closed,
                        std::size_t n);
    // Number of k < n with a[k] * b[k] at most `factor` times the minimum. No product is negative; n is at least 1.
    NearLeast (*near_least)(const double* a, const double* b, double factor, std::size_t n);

    // |x - z|^2 of rows of length d, bit-identical to the kernel loops.
    double (*squared_distance)(const double* x, const double* z, std::size_t d);
    // out = rows of X minus `shift`, squares[i] = sum of squares of row i of out.
    void (*shift_rows)(const double* X, std::size_t n, std::size_t d, const double* shift, double* out,
                       double* squares);
    // The distance of body k is within `doubt` * t of products[k] + t, t = factors[k] * square + offsets[k]. Number of
    // bodies that may be the nearest, including those with NaN. n is a multiple of the vector width.
    NearLeast (*perhaps_least)(const double* products, const double* factors, const double* offsets, double square,
                               double doubt, std::size_t n);
};

}  // namespace steelyard
