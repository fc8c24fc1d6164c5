// Hot loops of enclosing balls and ellipsoids (bodies): one solver step, and the search for the nearest body.
// A solver step updates the heights of all rows, which are squared distances to the center up to a constant.
#pragma once

#include <cstddef>

namespace steelyard {

struct NearLeast {
    std::size_t count;
    std::size_t at;  // index of the minimum if the count is 1, else undefined
};

struct BallLoops {
    // heights[k] -= factor * (row_i[k] - row_j[k]) for k < n, where n is at least 1.
    // Returns the first position of the largest heights[k] - closed[k], where closed[k] is 0 or infinity.
    std::size_t (*move)(double* heights, const double* row_i, const double* row_j, double factor, const double* closed,
                        std::size_t n);
    // Counts the k < n for which a[k] * b[k] is at most `factor` times the minimum.
    // No product may be negative, and n is at least 1.
    NearLeast (*near_least)(const double* a, const double* b, double factor, std::size_t n);

    // Returns |x - z|^2 of rows of length d, bit-identical to the kernel loops.
    double (*squared_distance)(const double* x, const double* z, std::size_t d);
    // out = rows of X minus `shift`, and squares[i] = sum of squares of row i of out.
    void (*shift_rows)(const double* X, std::size_t n, std::size_t d, const double* shift, double* out,
                       double* squares);
    // Counts the bodies that may be the nearest, including bodies with NaN distances.
    // The distance to body k is products[k] + t, with t = factors[k] * square + offsets[k] and an error <= doubt * t.
    // n is a multiple of the vector width.
    NearLeast (*perhaps_least)(const double* products, const double* factors, const double* offsets, double square,
                               double doubt, std::size_t n);
};

}  // namespace steelyard
