// Cholesky factors, four rows at a time: the row that they meet is loaded once for all four.
#pragma once

#include "steelyard/loops_factor.hpp"
#include "vectors.hpp"

namespace steelyard::STEELYARD_LEVEL {

// out[r] = sum over k < n of a[r * stride + k] * b[k]
template <size_t Rows>
[[gnu::always_inline]] static inline void row_products(const double* a, size_t stride, const double* b, size_t n,
                                                       double* out) {
    VecD sums[Rows] = {};
    size_t k = 0;
    for (; k + kDoubles <= n; k += kDoubles) {
        const VecD right = load(b + k);
        for (size_t r = 0; r < Rows; ++r) sums[r] += load(a + r * stride + k) * right;
    }
    for (size_t r = 0; r < Rows; ++r) out[r] = lane_sum(sums[r]);
    for (; k < n; ++k)
        for (size_t r = 0; r < Rows; ++r) out[r] += a[r * stride + k] * b[k];
}

// Rows first to first + Rows of the factor, those above being done.
template <size_t Rows>
static bool factor_rows(double* matrix, size_t first, size_t stride) {
    double* rows = matrix + first * stride;
    double products[Rows];
    for (size_t j = 0; j < first; ++j) {
        const double* above = matrix + j * stride;
        row_products<Rows>(rows, stride, above, j, products);
        const double inverse = 1.0 / above[j];
        for (size_t r = 0; r < Rows; ++r) rows[r * stride + j] = (rows[r * stride + j] - products[r]) * inverse;
    }
    for (size_t c = 0; c < Rows; ++c) {
        double* pivot_row = rows + c * stride;
        const size_t j = first + c;
        row_products<Rows>(rows, stride, pivot_row, j, products);
        const double pivot = pivot_row[j] - products[c];
        if (!(pivot > 0.0)) return false;
        const double root = __builtin_sqrt(pivot);
        pivot_row[j] = root;
        for (size_t r = c + 1; r < Rows; ++r) rows[r * stride + j] = (rows[r * stride + j] - products[r]) / root;
    }
    return true;
}

static bool factor_matrix(double* matrix, size_t n, size_t stride) {
    size_t first = 0;
    for (; first + 4 <= n; first += 4)
        if (!factor_rows<4>(matrix, first, stride)) return false;
    for (; first < n; ++first)
        if (!factor_rows<1>(matrix, first, stride)) return false;
    return true;
}

static void solve_factored(const double* factor, size_t n, size_t stride, double* right) {
    for (size_t i = 0; i < n; ++i) {
        double product;
        row_products<1>(factor + i * stride, stride, right, i, &product);
        right[i] = (right[i] - product) / factor[i * stride + i];
    }
    for (size_t i = n; i-- > 0;) {
        const double* row = factor + i * stride;
        right[i] /= row[i];
        const VecD value = broadcast(right[i]);
        size_t k = 0;
        for (; k + kDoubles <= i; k += kDoubles) store(right + k, load(right + k) - value * load(row + k));
        for (; k < i; ++k) right[k] -= right[i] * row[k];
    }
}

static double quadratic_form(const double* matrix, size_t n, size_t stride, const double* x) {
    double total = 0.0, product;
    for (size_t i = 0; i < n; ++i) {
        row_products<1>(matrix + i * stride, stride, x, i, &product);
        total += x[i] * (2.0 * product + matrix[i * stride + i] * x[i]);
    }
    return total;
}

constexpr FactorLoops factor_loops{factor_matrix, solve_factored, quadratic_form};

}  // namespace steelyard::STEELYARD_LEVEL
