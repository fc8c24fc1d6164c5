// Sorting of floating-point numbers by their bits.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>
#include <vector>

namespace steelyard {

// Sorts numbers in ascending order: small arrays by comparisons, others one byte after the other (radix sort).
// -0 comes before 0 and NaN at one of the ends.
inline void sort_ascending(std::vector<double>& values) {
    constexpr std::size_t min_radix_values = 128;
    constexpr std::uint64_t sign = std::uint64_t{1} << 63;
    std::vector<std::uint64_t> keys(values.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        const auto bits = std::bit_cast<std::uint64_t>(values[i]);
        keys[i] = bits & sign ? ~bits : bits | sign;  // the order of the numbers is that of the keys
    }
    if (keys.size() < min_radix_values) {
        std::ranges::sort(keys);
    } else {
        std::vector<std::uint64_t> sorted(keys.size());
        std::array<std::array<std::uint32_t, 256>, 8> counts{};
        for (const std::uint64_t key : keys)
            for (unsigned byte = 0; byte < 8; ++byte) ++counts[byte][key >> (8 * byte) & 255];
        for (unsigned byte = 0; byte < 8; ++byte) {
            std::uint32_t begin = 0;
            for (std::uint32_t& count : counts[byte]) begin += std::exchange(count, begin);
            for (const std::uint64_t key : keys) sorted[counts[byte][key >> (8 * byte) & 255]++] = key;
            keys.swap(sorted);
        }
    }
    for (std::size_t i = 0; i < keys.size(); ++i)
        values[i] = std::bit_cast<double>(keys[i] & sign ? keys[i] ^ sign : ~keys[i]);
}

}  // namespace steelyard
