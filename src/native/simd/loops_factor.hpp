// Hot loops of small positive definite systems: Cholesky factorization, solution and inverse.
#pragma once

#include <cstddef>

namespace steelyard {

struct FactorLoops {
    // Replaces the lower triangle of a symmetric n x n matrix with row stride `stride` by its Cholesky factor L.
    // Returns false and leaves undefined contents if the matrix is not positive definite.
    bool (*factor)(double* matrix, std::size_t n, std::size_t stride);
    // Replaces `right` by the solution of L L' x = right.
    void (*solve)(const double* factor, std::size_t n, std::size_t stride, double* right);
    // Writes the lower triangle of the inverse of L L'.
    // The rows of all three matrices are aligned and padded to cache lines.
    // `work` is scratch memory for the inverse of L. `work` and `inverse` must be zero on entry.
    void (*invert)(const double* factor, std::size_t n, std::size_t stride, double* work, double* inverse);
    // Returns x' M x for a symmetric matrix M, given by its lower triangle.
    double (*quadratic)(const double* matrix, std::size_t n, std::size_t stride, const double* x);

    // Number of small systems that are solved simultaneously, one per SIMD lane.
    // Entries with the same index in all systems are adjacent. Triangles are packed row by row up to the diagonal.
    std::size_t lanes;
    // matrix = share * total + own_share * own + penalty, where all lanes share `total` and `penalty`.
    // `own` and `matrix` may be the same array.
    void (*combine_lanes)(const double* total, const double* penalty, const double* share, const double* own_share,
                          std::size_t n_entries, const double* own, double* matrix);
    // Factors and solves the system of each lane. Returns false if any matrix is not positive definite.
    bool (*factor_lanes)(double* matrix, std::size_t n);
    void (*solve_lanes)(const double* factor, std::size_t n, double* right);
    // Computes x' M x for each lane, for the matrix of the lane and for a matrix that all lanes share.
    void (*quadratic_lanes)(const double* own, const double* shared, std::size_t n, const double* x, double* of_own,
                            double* of_shared);
};

}  // namespace steelyard
