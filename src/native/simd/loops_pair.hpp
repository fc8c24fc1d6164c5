// The hot loops of pairwise steps towards the solution of an SVM: one step over all samples, and the best partner.
#pragma once

#include <cstddef>
#include <cstdint>

namespace steelyard {

struct PairSamples {
    const float* diagonal;  // each kernel value of a sample with itself
    const double* grown;    // 0, or infinity where the multiplier cannot grow
    const double* fallen;   // 0, or infinity where it cannot fall
    double* e;              // decision values without intercept, minus labels
    std::size_t n;          // below 2^24: places are told in single precision
};

struct Partner {
    std::size_t at;     // n if there is none
    double difference;  // largest e[j] - e[up] of those that can fall
};

struct PairLoops {
    // e[i] += move * (up[i] - down[i]). Returns a position of the least e[i] + grown[i]; n if none is finite.
    std::size_t (*step)(const PairSamples& samples, double move, const float* up, const float* down);
    // Who can fall and lowers the objective most together with sample `up`, whose e is the least of those that can
    // grow.
    Partner (*partner)(const PairSamples& samples, std::size_t up, const float* up_row);
    // out[i] = own * factor[i] * row[places[i]] for i < n.
    void (*pick)(const double* row, const std::int32_t* places, double own, const double* factor, float* out,
                 std::size_t n);
};

}  // namespace steelyard
