// Exact Gram matrices of integer rows, computed with floating-point SIMD instructions.
//
// Quantized values are split into digits of 21 bits.
// A product of two digits has at most 42 bits, so a double can sum 2,048 such products exactly (below 2^53).
// If no factor is a sum of two digits, a double can sum 8,192 products exactly.
// All partial sums are integers, so the order of summation does not matter.
// The sums of digit products are then added to multiprecision integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/rows.hpp"
#include "proximal/limb_triangle.hpp"
#include "simd/loops_gram.hpp"

namespace steelyard {

// Returns the largest |x|, or NaN if any value is NaN.
template <class T>
double largest_magnitude(std::span<const T> values, unsigned n_threads = 1);

// Scans all rows. The struct Scan describes the results.
template <class T>
void scan_rows(Rows<T> rows, Steps steps, std::span<double> largest, std::span<double> remainder,
               std::span<std::uint8_t> beyond, unsigned n_threads);

// sums += weight * sum over the listed rows of e e', where e = [v, 1] and v is the quantized row.
// No |v| may exceed kTwoDigits. `largest` contains an upper bound of |v| for each feature. |weight| is at most 2^28.
// After an exception the sums are invalid.
template <class T>
void add_products(Rows<T> rows, std::span<const std::uint32_t> index, Steps steps, std::span<const double> largest,
                  std::int64_t weight, Triangle& sums, unsigned n_threads);

// Rows of one class, each with weight 1, and the sums to which they are added.
struct Share {
    std::span<const std::uint32_t> index;
    Triangle* sums;
};

// Adds rows that were not scanned. Each block is scanned when it is added, so memory is read only once.
// Every thread has its own d x d sums of digit products, so the number d of features should not be large.
// Rows with values above kTwoDigits are skipped and listed.
// Returns false, with invalid sums, if a value needs more rounding than allowed, or if memory is exhausted.
constexpr std::size_t kMostUnseen = 512;
template <class T>
bool add_unscanned(Rows<T> rows, Steps steps, std::span<const Share> shares, std::vector<std::uint32_t>& beyond,
                   unsigned n_threads);

}  // namespace steelyard
