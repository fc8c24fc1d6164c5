// Hot loops of sequential minimal optimization (SMO): one step over all samples, and the selection of the pair.
#pragma once

#include <cstddef>
#include <cstdint>

namespace steelyard {

struct PairSamples {
    const float* diagonal;  // kernel value of each sample with itself
    const double* grown;    // 0, or infinity if the coefficient is at its upper bound
    const double* fallen;   // 0, or infinity if the coefficient is at its lower bound
    double* e;              // decision values without intercept, minus labels
    std::size_t n;          // number of samples, below 2^24 because positions are stored in single precision
};

struct Partner {
    std::size_t at;     // index of the sample, or n if there is none
    double difference;  // largest e[j] - e[up] among the samples j whose coefficients can decrease
};

struct PairLoops {
    // e[i] += move * (up[i] - down[i]).
    // Returns the index of the smallest e[i] + grown[i], or n if no such number is finite.
    std::size_t (*step)(const PairSamples& samples, double move, const float* up, const float* down);
    // Finds the partner of `up`, the sample with the smallest e whose coefficient can increase.
    // The partner is the sample whose coefficient can decrease and for which the step lowers the objective most.
    Partner (*partner)(const PairSamples& samples, std::size_t up, const float* up_row);
    // out[i] = own * factor[i] * row[places[i]] for i < n, where `places` contains column indices of the row.
    void (*pick)(const double* row, const std::int32_t* places, double own, const double* factor, float* out,
                 std::size_t n);
};

}  // namespace steelyard
