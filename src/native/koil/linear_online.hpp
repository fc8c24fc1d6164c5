// Linear online learners: the perceptron, OAM and OPAUC. The caller owns the state. X is float or double, the state is
// double. y[i] is +1 or -1. In arrays of two entries, entry 1 belongs to the positive class.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/rows.hpp"

namespace steelyard {

// Perceptron: on a mistake, weights += y x and bias += y.
template <class T>
void perceptron_sweep(Rows<T> X, const std::int8_t* y, double* weights, double& bias);

// OAM (online AUC maximization), sequential version: a passive-aggressive step for each pair of the sample and a
// buffered vector of the other class.
struct OamState {
    double* weights;
    double* buffers[2];     // one buffer per class, with `budget` rows
    std::uint64_t* stored;  // number of buffered vectors of each class, at most `budget`
    std::uint64_t* seen;    // number of samples seen of each class
};
template <class T>
void oam_sweep(Rows<T> X, const std::int8_t* y, const OamState& state, std::size_t budget, double C,
               std::uint64_t seed);

// OPAUC (one-pass AUC optimization): gradient steps on the squared pairwise loss, computed from class means and
// covariances.
struct OpaucState {
    double* weights;
    double* means[2];
    double* covariances[2];
    std::uint64_t* seen;  // number of samples seen of each class
};
template <class T>
void opauc_sweep(Rows<T> X, const std::int8_t* y, const OpaucState& state, double learning_rate, double regularization);

}  // namespace steelyard
