// Shapley values of sums of product kernels.
#pragma once

#include <cstddef>

namespace steelyard {

// Scores f(x) = sum over v of coef[v] * product over c of k_c(x_c, v_c). The value of a set S of columns is the score
// with k_c of the row for the columns in S, and the reference factor for all others.
struct ProductKernelSum {
    const double* factors;    // k_c(x_c, v_c): (n_rows, n_vectors, n_columns)
    const double* reference;  // factors of the columns that are not in S: (n_vectors, n_columns)
    const double* coef;       // (n_scores, n_vectors)
    std::size_t n_rows, n_vectors, n_columns, n_scores;
};

// Writes the Shapley value of each column, (n_rows, n_columns, n_scores). With a_c and b_c the factors of row and
// reference, the value of column j in one product is
//
//     (a_j - b_j) * integral from 0 to 1 of product over c != j of (b_c + t (a_c - b_c)) dt,
//
// because the average over all orders of the columns has each set of s columns before j with the weight
// s! (n - s - 1)! / n!, which is the integral of t^s (1 - t)^(n - s - 1). Gauss-Legendre quadrature with 8 nodes is
// exact up to 16 columns.
void product_shapley(const ProductKernelSum& sum, double* out, unsigned n_threads);

}  // namespace steelyard
