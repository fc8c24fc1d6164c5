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

    // |x - z|^2 of rows of length d, to the last bit what the kernel loops say.
    double (*squared_distance)(const double* x, const double* z, std::size_t d);
    // out = rows of X minus `shift`, squares[i] = sum of squares of row i of out.
    void (*shift_rows)(const double* X, std::size_t n, std::size_t d, const double* shift, double* out,
                       double* squares);
    // Body k is somewhere within `doubt` * t of products[k] + t with t = factors[k] * square + offsets[k]. How many of
    // them can be the least; one whose number is not a number can. n is a multiple of the lanes of a vector.
    NearLeast (*perhaps_least)(const double* products, const double* factors, const double* offsets, double square,
                               double doubt, std::size_t n);
};

}  // namespace steelyard
