// Triangle: the lower triangle of sum(weight * e e') in multiprecision integers, where e = [v, 1] for a row v.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/rows.hpp"
#include "common/wide.hpp"

namespace steelyard {

// Row-major lower triangle of size x size numbers. The last row contains the sums of v and the sum of the weights.
// The numbers of a triangle have two 64-bit limbs at first.
// When a bound on their magnitudes no longer fits, all numbers get more limbs, so numbers never overflow.
class Triangle {
  public:
    explicit Triangle(std::size_t size) : size_(size), data_(2 * entries(size), 0) {}

    static std::size_t entries(std::size_t size) { return size * (size + 1) / 2; }
    static std::size_t place(std::size_t row, std::size_t column) { return row * (row + 1) / 2 + column; }

    std::size_t size() const { return size_; }
    std::size_t limbs() const { return limbs_; }
    std::size_t n_bytes() const { return data_.size() * sizeof(std::uint64_t); }
    double bits() const { return bits_; }  // log2 of a bound on all magnitudes
    bool is_narrow() const { return limbs_ == 2; }
    int128* narrow() { return reinterpret_cast<int128*>(data_.data()); }
    const int128* narrow() const { return reinterpret_cast<const int128*>(data_.data()); }

    Big get(std::size_t place) const { return Big::load(data_.data() + place * limbs_, limbs_); }
    Big get(std::size_t row, std::size_t column) const { return get(place(row, column)); }
    Big count() const { return get(size_ - 1, size_ - 1); }
    void set(std::size_t place, const Big& value);  // raises the bound on all magnitudes if needed

    // Reserves limbs for numbers that grow by at most 2^bits. Must be called before every addition.
    void reserve(double bits);
    void add_at(std::size_t place, int128 value);  // reserve() must be called first

    void add(const Triangle& other, int sign);
    // Adds one row of weight w. Values are at most 2^62, or of any size if they are of type Big.
    void add_row(std::span<const std::int64_t> v, std::int64_t w);
    void add_row(std::span<const Big> v, const Big& w);
    // Multiplies feature j by 2^shifts[j] and every weight by 2^weight_shift.
    void refine(std::span<const unsigned> shifts, unsigned weight_shift);
    // Translates features: value v of feature j becomes v - by[j].
    void translate(std::span<const Big> by);
    void decay(double factor);  // multiplies by the factor and rounds
    void shrink();              // releases limbs that are no longer needed
    bool is_zero() const;
    // Returns a triangle whose feature j is feature from[j] of this triangle, or zero if from[j] < 0.
    Triangle permute_features(std::span<const std::int64_t> from) const;

    // Returns all numbers in little-endian order, each with the number of bytes that the largest number needs.
    std::vector<std::uint8_t> to_bytes(std::size_t* bytes_each) const;
    static Triangle from_bytes(std::size_t size, std::span<const std::uint8_t> bytes, std::size_t bytes_each);

  private:
    double largest_bits() const;
    void resize(std::size_t limbs);

    std::size_t size_;
    std::size_t limbs_ = 2;
    double bits_ = 0.0;  // log2 of a bound on all magnitudes
    AlignedVector<std::uint64_t> data_;
};

// Lazy sum of several triangles.
// Entries of the sum are computed when they are read, so no memory for another triangle is needed.
class TriangleSum {
  public:
    explicit TriangleSum(std::size_t size) : size_(size) {}

    void add(const Triangle& triangle);  // the triangle must outlive the sum
    void add(Triangle&& triangle);

    std::size_t size() const { return size_; }
    double bits() const { return bits_; }  // log2 of a bound on all magnitudes
    bool is_narrow() const;                // whether all numbers and their sums fit in two limbs
    Big get(std::size_t row, std::size_t column) const;
    Big count() const { return get(size_ - 1, size_ - 1); }
    // Returns one row of a narrow sum. `buffer` stores the result if an addition is needed.
    const int128* row(std::size_t row, std::vector<int128>& buffer) const;
    Triangle formed() const;

  private:
    std::size_t size_;
    double bits_ = 0.0;
    std::vector<const Triangle*> terms_;
    std::vector<std::shared_ptr<const Triangle>> own_;
};

}  // namespace steelyard
