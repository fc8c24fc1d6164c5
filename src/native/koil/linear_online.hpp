// Linear online learners: the perceptron, OAM, OPAUC and AROW. The caller owns the state. X is float or double, the
// state is double. y[i] is +1 or -1. In arrays of two entries, entry 1 belongs to the positive class.
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

// AROW (adaptive regularization of weights) with a diagonal covariance. Rows are sparse: a row costs its number of
// nonzero values.
struct SparseSample {
    const double* values;
    const std::int32_t* columns;  // without duplicates
    std::size_t n_values;
};
struct ArowState {
    double* weights;
    double* variances;  // of the weights, 1 before the first update
    double* bias;       // value and variance of the intercept
    double* seen;       // sum of the weights of the samples of each class
};
// One pass over rows; row_at(i) returns a SparseSample. The regularization of a row is in proportion to the share of
// its class so far, so that both classes have the same influence, and inversely proportional to its weight.
template <class RowAt>
void arow_sweep(std::size_t n_rows, const RowAt& row_at, const std::int8_t* y, const double* row_weights,
                const ArowState& state, double regularization) {
    double *w = state.weights, *variances = state.variances, *seen = state.seen;
    for (std::size_t i = 0; i < n_rows; ++i) {
        const SparseSample row = row_at(i);
        const double sign = y[i];
        double& own = seen[y[i] > 0];
        own += row_weights[i];
        double score = state.bias[0], variance = state.bias[1];
        for (std::size_t k = 0; k < row.n_values; ++k) {
            const double x = row.values[k];
            score += w[row.columns[k]] * x;
            variance += variances[row.columns[k]] * x * x;
        }
        const double loss = 1.0 - sign * score;
        if (!(loss > 0.0)) continue;
        const double r = 2.0 * regularization * own / (seen[0] + seen[1]) / row_weights[i];
        const double beta = 1.0 / (variance + r), step = sign * loss * beta;
        for (std::size_t k = 0; k < row.n_values; ++k) {
            const std::int32_t j = row.columns[k];
            const double product = variances[j] * row.values[k];
            w[j] += step * product;
            variances[j] -= beta * product * product;
        }
        state.bias[0] += step * state.bias[1];
        state.bias[1] -= beta * state.bias[1] * state.bias[1];
    }
}

}  // namespace steelyard
