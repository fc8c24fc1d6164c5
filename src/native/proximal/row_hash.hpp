// Hash of a row that depends only on its values.
// The hash is the same for float and double, for dense and sparse rows, and on every machine.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace steelyard {

// Xor-shift-multiply finalizer: every input bit affects every output bit.
constexpr std::uint64_t scramble(std::uint64_t z) {
    z ^= z >> 32;
    z *= 0xd6e8feb86659fd93u;
    z ^= z >> 32;
    z *= 0xd6e8feb86659fd93u;
    z ^= z >> 32;
    return z;
}

// Returns the contribution of one value to the hash of its row.
// Zeros of both signs contribute nothing, so sparse and dense rows have equal hashes.
inline std::uint64_t hash_value(std::size_t column, double value) {
    if (value == 0.0) return 0;
    return scramble(std::bit_cast<std::uint64_t>(value) + 0x9e3779b97f4a7c15u * (column + 1));
}

}  // namespace steelyard
