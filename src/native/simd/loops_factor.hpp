// The hot loops of small definite systems: the factor of a matrix, and what is solved with it.
#pragma once

#include <cstddef>

namespace steelyard {

struct FactorLoops {
    // The lower triangle of a symmetric matrix of n rows, `stride` numbers apart, becomes its Cholesky factor. False if
    // it is not positive definite; the matrix is then of no use.
    bool (*factor)(double* matrix, std::size_t n, std::size_t stride);
    // right becomes the solution of L L' x = right.
    void (*solve)(const double* factor, std::size_t n, std::size_t stride, double* right);
    // The lower triangle of the inverse of L L'. Rows of all three begin on a cache line and end with one; `room`, for
    // the inverse of L, and `inverse` are zeros before.
    void (*invert)(const double* factor, std::size_t n, std::size_t stride, double* room, double* inverse);
    // x' M x of a symmetric matrix given by its lower triangle.
    double (*quadratic)(const double* matrix, std::size_t n, std::size_t stride, const double* x);

    // Several small systems at once, one a lane: numbers of the same place stand together, `lanes` of them. Triangles
    // are packed, row after row up to the diagonal.
    std::size_t lanes;
    // matrix = share * total + own_share * own + penalty, with one total and penalty for all; own and matrix may be
    // one.
    void (*combine_lanes)(const double* total, const double* penalty, const double* share, const double* own_share,
                          std::size_t n_entries, const double* own, double* matrix);
    // As above for each lane; false if one of the matrices is not positive definite.
    bool (*factor_lanes)(double* matrix, std::size_t n);
    void (*solve_lanes)(const double* factor, std::size_t n, double* right);
    // x' M x for each lane, of the lane's own matrix and of one that all share.
    void (*quadratic_lanes)(const double* own, const double* shared, std::size_t n, const double* x, double* of_own,
                            double* of_shared);
};

}  // namespace steelyard
