// Sums of products as whole numbers: the lower triangle of sum of weight * e e', with e = [v, 1] and v whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/rows.hpp"
#include "common/wide.hpp"

namespace steelyard {

// Row-major lower triangle of size x size numbers, the last row being sums of v and the sum of the weights. Numbers
// have two limbs; where a bound on their magnitude comes near the end of these, all get more. They never wrap.
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
    void set(std::size_t place, const Big& value);  // raises the bound where needed

    // Makes room for numbers that grow by at most 2^bits: to be called before whatever adds.
    void reserve(double bits);
    void add_at(std::size_t place, int128 value);  // after reserve

    void add(const Triangle& other, int sign);
    // One row of weight w: values of up to 2^62, or of any size.
    void add_row(std::span<const std::int64_t> v, std::int64_t w);
    void add_row(std::span<const Big> v, const Big& w);
    // Multiplies feature j by 2^shifts[j] and every weight by 2^weight_shift.
    void refine(std::span<const unsigned> shifts, unsigned weight_shift);
    // Measures feature j from by[j] on: v becomes v - by[j].
    void translate(std::span<const Big> by);
    void fade(double factor);  // multiplies and rounds
    void shrink();             // gives room back that large numbers, gone since, had needed
    bool is_zero() const;
    // Feature j is what feature from[j] was; zero where from[j] is negative.
    Triangle rearranged(std::span<const std::int64_t> from) const;

    // Numbers of n_bytes() each, little-endian, as short as all of them allow.
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

// The sum of several triangles, added up where it is read: forming it would take another triangle's room, and as long
// as reading.
class TriangleSum {
  public:
    explicit TriangleSum(std::size_t size) : size_(size) {}

    void add(const Triangle& triangle);  // which stays where it is as long as this is read
    void add(Triangle&& triangle);

    std::size_t size() const { return size_; }
    double bits() const { return bits_; }  // log2 of a bound on all magnitudes
    bool is_narrow() const;                // whether all numbers, and all sums of them, have two limbs
    Big get(std::size_t row, std::size_t column) const;
    Big count() const { return get(size_ - 1, size_ - 1); }
    // The numbers of one row of a narrow sum; `room` is for whatever has to be added up.
    const int128* row(std::size_t row, std::vector<int128>& room) const;
    Triangle formed() const;

  private:
    std::size_t size_;
    double bits_ = 0.0;
    std::vector<const Triangle*> terms_;
    std::vector<std::shared_ptr<const Triangle>> own_;
};

}  // namespace steelyard
