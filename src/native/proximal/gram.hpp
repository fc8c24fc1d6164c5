// Sums of products of whole numbers on the floating-point units, without any rounding.
//
// Values are counted in quanta and cut into digits of 21 bits. A product of two digits has at most 42 bits, so the
// doubles that sum up to 2,048 of them (8,192 where no sum of two digits is involved) stay below 2^53: they are whole
// numbers throughout, and no order in which they are added makes a difference. From there they go into wide integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/rows.hpp"
#include "proximal/limb_triangle.hpp"
#include "simd/loops_gram.hpp"

namespace steelyard {

// Largest |x| of some values; NaN if there is one, else infinity if there is one.
template <class T>
double largest_magnitude(std::span<const T> values, unsigned n_threads = 1);

// One look at all rows; see Scan.
template <class T>
void scan_rows(Rows<T> rows, Steps steps, std::span<double> largest, std::span<double> remainder,
               std::span<std::uint8_t> beyond, unsigned n_threads);

// sums += weight * sum over the listed rows of e e', with e = [v, 1]. No v is beyond kTwoDigits; largest bounds |v| by
// feature, other rows included; |weight| is at most 2^28. If it throws, the sums are spoilt.
template <class T>
void add_products(Rows<T> rows, std::span<const std::uint32_t> index, Steps steps, std::span<const double> largest,
                  std::int64_t weight, Triangle& sums, unsigned n_threads);

// Rows of one class, each of weight 1, and where the sums of their products are.
struct Share {
    std::span<const std::uint32_t> index;
    Triangle* sums;
};

// The same for rows that nobody has looked at: a block of them is looked at when it is summed, so each is read once.
// Every thread holds sums of d x d digits of its own, so d should not be large. Rows beyond kTwoDigits are left out and
// listed. False, and the sums are spoilt, if a value needs more slack than there is, or if there is no room.
constexpr std::size_t kMostUnseen = 512;
template <class T>
bool add_unseen(Rows<T> rows, Steps steps, std::span<const Share> shares, std::vector<std::uint32_t>& beyond,
                unsigned n_threads);

}  // namespace steelyard
