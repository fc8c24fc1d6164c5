// Solution of a small positive definite linear system, with sums in a fixed order.
#pragma once

#include <cmath>
#include <cstddef>

namespace steelyard {

// Solves A x = b. A is n x n and row-major; its lower triangle is read and replaced by its Cholesky factor.
// b is replaced by x. Pivots are at least `least_pivot`.
inline void solve_positive_definite(double* A, double* b, std::size_t n, double least_pivot = 1e-300) {
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j <= i; ++j) {
            double sum = A[i * n + j];
            for (std::size_t k = 0; k < j; ++k) sum -= A[i * n + k] * A[j * n + k];
            A[i * n + j] = i == j ? std::sqrt(sum > least_pivot ? sum : least_pivot) : sum / A[j * n + j];
        }
        for (std::size_t k = 0; k < i; ++k) b[i] -= A[i * n + k] * b[k];
        b[i] /= A[i * n + i];
    }
    for (std::size_t i = n; i-- > 0;) {
        for (std::size_t k = i + 1; k < n; ++k) b[i] -= A[k * n + i] * b[k];
        b[i] /= A[i * n + i];
    }
}

}  // namespace steelyard
