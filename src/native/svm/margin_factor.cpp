#include "svm/margin_factor.hpp"

#include <algorithm>
#include <cmath>

#include "common/dot.hpp"
#include "simd/simd.hpp"

namespace steelyard {

void MarginFactor::clear() {
    size_ = 0;
    // Clears uninitialized memory, which may contain numbers that are not finite.
    std::fill(columns_.begin(), columns_.end(), 0.0);
    ones_.clear();
    inverse_.clear();
    ones_squared_ = 0.0;
}

void MarginFactor::reserve(std::size_t capacity) {
    if (capacity <= capacity_) return;
    const std::size_t grown = std::max<std::size_t>({capacity, capacity_ + capacity_ / 2, 32});
    std::vector<double> columns(grown * grown + kReadBehind);
    for (std::size_t j = 0; j < size_; ++j)
        std::copy(column(j) + j, column(j) + size_, columns.begin() + static_cast<std::ptrdiff_t>(j * grown + j));
    columns_ = std::move(columns);
    capacity_ = grown;
    carry_.resize(grown);
}

void MarginFactor::forward(double* x) const { loops().solver.solve_forward(triangle(), x); }

void MarginFactor::backward(double* x) const { loops().solver.solve_backward(triangle(), x); }

double MarginFactor::pivot_squared(const double* solved, double diagonal) const {
    return diagonal - dot(solved, solved, size_);
}

void MarginFactor::append(const double* solved, double pivot_squared) {
    const double pivot = std::sqrt(pivot_squared);
    const double one = (1.0 - dot(solved, ones_.data(), size_)) / pivot;
    reserve(size_ + 1);
    ones_.push_back(one);
    for (std::size_t j = 0; j < size_; ++j) column(j)[size_] = solved[j];
    column(size_)[size_] = pivot;
    inverse_.push_back(1.0 / pivot);
    ++size_;
    ones_squared_ = dot(ones_.data(), ones_.data(), size_);
}

void MarginFactor::remove(std::size_t k, double* solved) {
    for (std::size_t j = 0; j < k; ++j) std::copy(column(j) + k + 1, column(j) + size_, column(j) + k);
    // Rank-one update L33 L33' + l l' of the block below and to the right of the removed column l.
    // The rank-one update needs one Givens rotation per column.
    std::copy(column(k) + k + 1, column(k) + size_, carry_.begin());
    // The same rotations update L^-1 e and other solved vectors. Rotations are orthogonal and lose no precision.
    const auto rotate = loops().solver.rotate;
    double one = ones_[k], other = solved ? solved[k] : 0.0;
    for (std::size_t j = k + 1; j < size_; ++j) {
        double* carry = carry_.data() + (j - k - 1);
        const double* l = column(j) + j;
        const double r = std::sqrt(l[0] * l[0] + carry[0] * carry[0]), c = l[0] / r, s = carry[0] / r;
        rotate(c, s, l, carry, column(j - 1) + j - 1, size_ - j);
        inverse_[j - 1] = 1.0 / column(j - 1)[j - 1];
        const double next = ones_[j];
        ones_[j - 1] = c * next + s * one;
        one = c * one - s * next;
        if (!solved) continue;
        const double next_solved = solved[j];
        solved[j - 1] = c * next_solved + s * other;
        other = c * other - s * next_solved;
    }
    --size_;
    ones_.pop_back();
    inverse_.pop_back();
    ones_squared_ = dot(ones_.data(), ones_.data(), size_);
}

double MarginFactor::solve_bordered(double* solved, double total) const {
    const double db = (total - dot(ones_.data(), solved, size_)) / ones_squared_;
    for (std::size_t j = 0; j < size_; ++j) solved[j] = -(solved[j] + db * ones_[j]);
    backward(solved);
    return db;
}

double MarginFactor::curvature(const double* solved, double pivot_squared) const {
    const double rest = 1.0 - dot(solved, ones_.data(), size_);
    return std::max(0.0, pivot_squared) + rest * rest / ones_squared_;
}

std::vector<double> MarginFactor::packed() const {
    std::vector<double> rows;
    rows.reserve(size_ * (size_ + 1) / 2);
    for (std::size_t i = 0; i < size_; ++i)
        for (std::size_t j = 0; j <= i; ++j) rows.push_back(column(j)[i]);
    rows.insert(rows.end(), ones_.begin(), ones_.end());
    return rows;
}

void MarginFactor::restore(const std::vector<double>& packed, std::size_t size) {
    clear();
    reserve(size);
    size_ = size;
    auto next = packed.begin();
    for (std::size_t i = 0; i < size; ++i)
        for (std::size_t j = 0; j <= i; ++j) column(j)[i] = *next++;
    for (std::size_t j = 0; j < size; ++j) inverse_.push_back(1.0 / column(j)[j]);
    ones_.assign(next, packed.end());
    ones_squared_ = dot(ones_.data(), ones_.data(), size_);
}

}  // namespace steelyard
