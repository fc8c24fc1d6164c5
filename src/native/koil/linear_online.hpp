// Linear online learners: the perceptron, OAM and OPAUC. The caller owns the state. X is float or double, the state is
// double. y[i] is +1 or -1; side 1 is the positive one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/rows.hpp"

namespace steelyard {

// On a mistake, weights += y x and bias += y.
template <class T>
void perceptron_sweep(Rows<T> X, const std::int8_t* y, double* weights, double& bias);

// Online AUC maximization, sequential: a passive-aggressive step for each pair with the buffer of the other class.
struct OamState {
    double* weights;
    double* buffers[2];     // budget rows each
    std::uint64_t* stored;  // [2], at most budget
    std::uint64_t* seen;    // [2]
};
template <class T>
void oam_sweep(Rows<T> X, const std::int8_t* y, const OamState& state, std::size_t budget, double C,
               std::uint64_t seed);

// One-pass AUC optimization: gradient steps on the squared pairwise loss, from class means and covariances.
struct OpaucState {
    double* weights;
    double* means[2];
    double* covariances[2];
    std::uint64_t* seen;  // [2]
};
template <class T>
void opauc_sweep(Rows<T> X, const std::int8_t* y, const OpaucState& state, double learning_rate, double regularization);

}  // namespace steelyard
