// Hot loops of sequential minimal optimization (SMO): one step over all samples, and the choice of the pair.
#pragma once

#include <cstddef>
#include <cstdint>

namespace steelyard {

struct PairSamples {
    const float* diagonal;  // kernel value of each sample with itself
    const double* grown;    // 0, or infinity if the coefficient is at its upper bound
    const double* fallen;   // 0, or infinity if it is at its lower bound
    double* e;              // decision values without intercept, minus labels
    std::size_t n;          // below 2^24, because positions are stored in single precision
};

struct Partner {
    std::size_t at;     // n if there is none
    double difference;  // largest e[j] - e[up] of the samples that can decrease
};

struct PairLoops {
    // e[i] += move * (up[i] - down[i]). Returns a position of the least e[i] + grown[i]; n if none is finite.
    std::size_t (*step)(const PairSamples& samples, double move, const float* up, const float* down);
    // Finds the sample that can decrease and lowers the objective most together with `up`, the sample with the smallest
    // e that can increase.
    Partner (*partner)(const PairSamples& samples, std::size_t up, const float* up_row);
    // out[i] = own * factor[i] * row[places[i]] for i < n.
    void (*pick)(const double* row, const std::int32_t* places, double own, const double* factor, float* out,
                 std::size_t n);
};

}  // namespace steelyard
