// Hot loop of Shapley values of product kernels.
#pragma once

#include <cstddef>

namespace steelyard {

constexpr std::size_t kShapleyNodes = 8;  // number of Gauss-Legendre nodes, a multiple of the lanes of every SIMD level

struct ShapleyLoops {
    // Adds the Shapley values of one product of n factors to `totals`, an array of shape (n_scores, n, nodes).
    // The Shapley value is the sum over the nodes. `a` and `b` are the factors of the row and of the reference.
    // `coef` contains the coefficients of the scores with stride `stride`.
    // `suffix` is scratch memory for (n + 1) * nodes numbers.
    void (*add_product)(const double* a, const double* b, std::size_t n, const double* coef, std::size_t stride,
                        std::size_t n_scores, double* suffix, double* totals);
};

}  // namespace steelyard
