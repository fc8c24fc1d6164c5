// MarginFactor: updatable Cholesky factor of the kernel matrix of the margin set, and linear systems solved with it.
#pragma once

#include <cstddef>
#include <vector>

#include "simd/loops_solver.hpp"

namespace steelyard {

// Cholesky factor L of A = L L', where A is the kernel matrix K of the margin set with a constant added to every entry.
// The constant has no effect for coefficients that sum to zero.
// With the constant, A is positive definite whenever the bordered matrix [0 1'; 1 K] is regular.
// The factor therefore replaces the inverse of the bordered matrix, and it loses half as many digits.
//
// L is stored by columns with stride `capacity`.
// With this layout a new row writes one entry per column, and all loops read memory in order.
class MarginFactor {
  public:
    std::size_t size() const { return size_; }
    void clear();

    // Replaces x by L^-1 x.
    void forward(double* x) const;
    // Replaces x by L^-T x.
    void backward(double* x) const;

    // Returns the squared pivot of a new row with the entries L * solved and a given diagonal entry.
    double pivot_squared(const double* solved, double diagonal) const;
    // Appends a row with the entries L * solved.
    void append(const double* solved, double pivot_squared);
    // Removes row and column k. An optional vector `solved` = L^-1 a is updated for the smaller L and a.
    void remove(std::size_t k, double* solved = nullptr);

    // Solves K dz + db = -r, sum(dz) = -total, given solved = L^-1 (r + constant * total).
    // Overwrites `solved` with dz and returns db.
    double solve_bordered(double* solved, double total) const;
    // Returns the second derivative of the objective in a new coefficient while the margin set adapts.
    double curvature(const double* solved, double pivot_squared) const;

    // Returns the lower triangle row by row and the solved vectors.
    // A factor restored from them gives bit-identical results.
    std::vector<double> packed() const;
    void restore(const std::vector<double>& packed, std::size_t size);

  private:
    double* column(std::size_t j) { return columns_.data() + j * capacity_; }
    const double* column(std::size_t j) const { return columns_.data() + j * capacity_; }
    void reserve(std::size_t capacity);
    TriangularFactor triangle() const { return {columns_.data(), inverse_.data(), capacity_, size_}; }

    std::size_t size_ = 0, capacity_ = 0;
    std::vector<double> columns_;
    std::vector<double> ones_;     // L^-1 e, where e is the vector of ones
    std::vector<double> inverse_;  // 1 / L_jj
    std::vector<double> carry_;
    double ones_squared_ = 0.0;
};

}  // namespace steelyard
