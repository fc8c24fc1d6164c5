// Online linear learners (perceptron, OAM, OPAUC, AROW) and a linear SVM for sparse rows.
// The caller owns the state. X is float or double, the state is double. y[i] is +1 or -1.
// In arrays of two entries, entry 1 belongs to the positive class.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/random.hpp"
#include "common/rows.hpp"

namespace steelyard {

// Perceptron: on a mistake, weights += y x and bias += y.
template <class T>
void perceptron_sweep(Rows<T> X, const std::int8_t* y, double* weights, double& bias);

// OAM (online AUC maximization), sequential version.
// OAM makes a passive-aggressive step for each pair of the new sample and a buffered sample of the other class.
struct OamState {
    double* weights;
    double* buffers[2];     // one buffer per class, with `budget` rows
    std::uint64_t* stored;  // number of buffered vectors of each class, at most `budget`
    std::uint64_t* seen;    // number of samples seen of each class
};
template <class T>
void oam_sweep(Rows<T> X, const std::int8_t* y, const OamState& state, std::size_t budget, double C,
               std::uint64_t seed);

// OPAUC (one-pass AUC optimization): gradient steps on the squared pairwise loss.
// The gradient is computed from class means and covariances.
struct OpaucState {
    double* weights;
    double* means[2];
    double* covariances[2];
    std::uint64_t* seen;  // number of samples seen of each class
};
template <class T>
void opauc_sweep(Rows<T> X, const std::int8_t* y, const OpaucState& state, double learning_rate, double regularization);

// One sparse row: its nonzero values and their columns.
struct SparseSample {
    const double* values;
    const std::int32_t* columns;  // column indices without duplicates
    std::size_t n_values;
};
struct ArowState {
    double* weights;
    double* variances;  // variances of the weights, 1 before the first update
    double* bias;       // value and variance of the intercept
    double* seen;       // number of samples seen of each class
};
// Makes one pass of AROW (adaptive regularization of weights) with a diagonal covariance over n rows.
// row_at(i) returns a SparseSample. The cost per row is proportional to its number of nonzero values.
// Both classes have the same influence: the regularization of a row is proportional to the share of its class so far.
template <class RowAt>
void arow_sweep(std::size_t n_rows, const RowAt& row_at, const std::int8_t* y, const ArowState& state,
                double regularization) {
    double *w = state.weights, *variances = state.variances, *seen = state.seen;
    for (std::size_t i = 0; i < n_rows; ++i) {
        const SparseSample row = row_at(i);
        const double sign = y[i];
        double& own = seen[y[i] > 0];
        own += 1.0;
        double score = state.bias[0], variance = state.bias[1];
        for (std::size_t k = 0; k < row.n_values; ++k) {
            const double x = row.values[k];
            score += w[row.columns[k]] * x;
            variance += variances[row.columns[k]] * x * x;
        }
        const double loss = 1.0 - sign * score;
        if (!(loss > 0.0)) continue;
        const double r = 2.0 * regularization * own / (seen[0] + seen[1]);
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

// Linear SVM with squared hinge loss by dual coordinate descent (Hsieh et al. 2008).
// The solver makes n_passes over the rows, each in a different pseudorandom order.
// cost[i] is the loss weight of row i. `plane` contains n_features weights and the intercept, all 0 at first.
// The intercept is the weight of a column of ones.
template <class RowAt>
void fit_linear_svm(std::size_t n_rows, const RowAt& row_at, const std::int8_t* y, const double* cost, double* plane,
                    std::size_t n_features, std::size_t n_passes) {
    std::vector<double> dual(n_rows, 0.0), curvature(n_rows);
    std::vector<std::size_t> order(n_rows);
    for (std::size_t i = 0; i < n_rows; ++i) {
        const SparseSample row = row_at(i);
        double squared = 1.0;
        for (std::size_t k = 0; k < row.n_values; ++k) squared += row.values[k] * row.values[k];
        curvature[i] = squared + 0.5 / cost[i];
        order[i] = i;
    }
    double& intercept = plane[n_features];
    for (std::size_t pass = 0; pass < n_passes; ++pass) {
        for (std::size_t left = n_rows; left > 1; --left) {
            const double uniform = uniform_at(pass, left);
            std::swap(order[left - 1], order[static_cast<std::size_t>(uniform * static_cast<double>(left))]);
        }
        for (const std::size_t i : order) {
            const SparseSample row = row_at(i);
            double score = intercept;
            for (std::size_t k = 0; k < row.n_values; ++k) score += plane[row.columns[k]] * row.values[k];
            const double gradient = y[i] * score - 1.0 + 0.5 * dual[i] / cost[i];
            const double next = std::max(0.0, dual[i] - gradient / curvature[i]);
            const double change = (next - dual[i]) * y[i];
            dual[i] = next;
            if (change == 0.0) continue;
            for (std::size_t k = 0; k < row.n_values; ++k) plane[row.columns[k]] += change * row.values[k];
            intercept += change;
        }
    }
}

}  // namespace steelyard
