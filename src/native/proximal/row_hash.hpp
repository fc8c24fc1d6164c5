// A number for each row that depends on its values alone: equal rows have equal hashes, whether they are
// stored as float or double, dense or sparse, and on whatever machine.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace steelyard {

// Scrambles 64 bits so that each input bit reaches each output bit (a xor-shift-multiply finaliser).
constexpr std::uint64_t scramble(std::uint64_t z) {
    z ^= z >> 32;
    z *= 0xd6e8feb86659fd93u;
    z ^= z >> 32;
    z *= 0xd6e8feb86659fd93u;
    z ^= z >> 32;
    return z;
}

// The share of one value in its row's hash. Zeros (of both signs) have none, so sparse rows hash alike.
inline std::uint64_t hash_value(std::size_t column, double value) {
    if (value == 0.0) return 0;
    return scramble(std::bit_cast<std::uint64_t>(value) + 0x9e3779b97f4a7c15u * (column + 1));
}

}  // namespace steelyard
