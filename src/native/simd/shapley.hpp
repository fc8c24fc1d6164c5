// Shapley values of product kernels; see loops_shapley.hpp.
#pragma once

#include "simd/loops_shapley.hpp"
#include "vectors.hpp"

namespace steelyard::STEELYARD_LEVEL {

// Gauss-Legendre nodes and weights on [0, 1].
alignas(64) constexpr double kShapleyAt[kShapleyNodes]{0.019855071751231884, 0.10166676129318664, 0.23723379504183550,
                                                       0.40828267875217511,  0.59171732124782489, 0.76276620495816450,
                                                       0.89833323870681336,  0.98014492824876812};
alignas(64) constexpr double kShapleyWeights[kShapleyNodes]{
    0.050614268145188130, 0.11119051722668724, 0.15685332293894364, 0.18134189168918099,
    0.18134189168918099,  0.15685332293894364, 0.11119051722668724, 0.050614268145188130};

static void add_shapley_product(const double* a, const double* b, size_t n, const double* coef, size_t stride,
                                size_t n_scores, double* suffix, double* totals) {
    for (size_t q = 0; q < kShapleyNodes; q += kDoubles) {
        const VecD at = load(kShapleyAt + q);
        VecD after = load(kShapleyWeights + q);
        for (size_t c = n; c-- > 0;) {
            store(suffix + c * kShapleyNodes + q, after);  // product of the factors after column c
            after *= b[c] + at * (a[c] - b[c]);
        }
        VecD before = broadcast(1.0);
        for (size_t c = 0; c < n; ++c) {
            const double change = a[c] - b[c];
            const VecD others = before * load(suffix + c * kShapleyNodes + q) * change;
            for (size_t s = 0; s < n_scores; ++s) {
                double* total = totals + (s * n + c) * kShapleyNodes + q;
                store(total, load(total) + coef[s * stride] * others);
            }
            before *= b[c] + at * change;
        }
    }
}

constexpr ShapleyLoops shapley_loops{add_shapley_product};

}  // namespace steelyard::STEELYARD_LEVEL
