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
    // x' M x of a symmetric matrix given by its lower triangle.
    double (*quadratic)(const double* matrix, std::size_t n, std::size_t stride, const double* x);
};

}  // namespace steelyard
