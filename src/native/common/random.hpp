// Counter-based random numbers: the random number for step t is a function of the seed and t.
// A stream that is saved and resumed therefore continues with the same random numbers.
#pragma once

#include <cstdint>

namespace steelyard {

// The finalizer of SplitMix64: every bit of the argument affects every bit of the result.
constexpr std::uint64_t mix_bits(std::uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

// Uniform random number in [0, 1) for step t of one of several independent series.
constexpr double uniform_at(std::uint64_t seed, std::uint64_t t, std::uint64_t series = 0) {
    constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;
    const std::uint64_t bits = mix_bits(mix_bits(seed + golden * (t + 1)) + golden * (series + 1));
    return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace steelyard
