// A Cholesky factor that gains and loses rows, and the equations of the margin set solved with it.
#pragma once

#include <cstddef>
#include <vector>

#include "simd/loops_solver.hpp"

namespace steelyard {

// A = L L' for the kernel matrix of the margin set with one constant added to every entry. The constant changes
// nothing where coefficients sum to zero, and makes A positive definite as soon as the bordered matrix
// [0 1'; 1 K] is regular: so one triangular factor serves in the place of the bordered inverse, and loses half as
// many digits.
//
// L is kept by columns of stride `capacity`, so that growing writes one entry a column and all loops run in order.
class MarginFactor {
  public:
    std::size_t size() const { return size_; }
    void clear();

    // x = L^-1 x
    void forward(double* x) const;
    // x = L^-T x
    void backward(double* x) const;

    // What a row with entries a = L solved, and diagonal A_ss, leaves for its pivot: pivot^2.
    double pivot_squared(const double* solved, double diagonal) const;
    // Grows by a row whose entries are L * solved.
    void append(const double* solved, double pivot_squared);
    // Shrinks by row and column k. What was solved = L^-1 a becomes L^-1 a of the smaller L and a.
    void remove(std::size_t k, double* solved = nullptr);

    // Solves K dz + db = -r, sum(dz) = -total, given solved = L^-1 (r + constant * total); dz takes its place.
    // Returns db.
    double solve_bordered(double* solved, double total) const;
    // Curvature of the objective along a new row that moves while the margin set responds.
    double curvature(const double* solved, double pivot_squared) const;

    // The lower triangle, row after row, and what was solved ahead: all that it takes to go on bit by bit.
    std::vector<double> packed() const;
    void restore(const std::vector<double>& packed, std::size_t size);

  private:
    double* column(std::size_t j) { return columns_.data() + j * capacity_; }
    const double* column(std::size_t j) const { return columns_.data() + j * capacity_; }
    void reserve(std::size_t capacity);
    TriangularFactor triangle() const { return {columns_.data(), inverse_.data(), capacity_, size_}; }

    std::size_t size_ = 0, capacity_ = 0;
    std::vector<double> columns_;
    std::vector<double> ones_;     // L^-1 e
    std::vector<double> inverse_;  // 1 / L_jj
    std::vector<double> carry_;
    double ones_squared_ = 0.0;
};

}  // namespace steelyard
