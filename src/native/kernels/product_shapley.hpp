// Shapley values of sums of product kernels.
#pragma once

#include <cstddef>

namespace steelyard {

// Factors of a score f(x) = sum over v of coef[v] * product over c of k_c(x_c, v_c), for rows x and vectors v.
// The value of a set S of columns is the score with the reference factors in place of k_c for all columns not in S.
struct ProductKernelSum {
    const double* factors;    // k_c(x_c, v_c), shape (n_rows, n_vectors, n_columns)
    const double* reference;  // reference factors for columns outside the set S, shape (n_vectors, n_columns)
    const double* coef;       // coefficients, shape (n_scores, n_vectors)
    std::size_t n_rows, n_vectors, n_columns, n_scores;
};

// Writes the Shapley value of each column, shape (n_rows, n_columns, n_scores).
// With the factors a_c of the row and b_c of the reference, the Shapley value of column j in one product is
//
//     (a_j - b_j) * integral from 0 to 1 of product over c != j of (b_c + t (a_c - b_c)) dt.
//
// Derivation: the Shapley value averages over all orders of the n columns.
// In this average, a set of s columns that precede column j has the weight s! (n - s - 1)! / n!.
// The weight s! (n - s - 1)! / n! is the integral of t^s (1 - t)^(n - s - 1) from 0 to 1.
// Gauss-Legendre quadrature with 8 nodes is exact for up to 16 columns.
void product_shapley(const ProductKernelSum& sum, double* out, unsigned n_threads);

}  // namespace steelyard
