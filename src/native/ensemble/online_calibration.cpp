#include "ensemble/online_calibration.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "common/portable_math.hpp"
#include "ensemble/small_system.hpp"

// Compiled without floating-point contraction, so that results are bit-identical on every machine.

namespace steelyard {

namespace {

using Features = std::array<double, kMaxEdges>;

// Returns the part of the log-odds that each slope multiplies, and 1 for the bias.
Features features_of(std::span<const double> edges, double log_odds) {
    Features x{};
    const std::size_t n_slopes = edges.size() - 1;
    for (std::size_t k = 0; k < n_slopes; ++k)
        x[k] = std::clamp(log_odds, edges[k], edges[k + 1]) - std::clamp(0.0, edges[k], edges[k + 1]);
    x[n_slopes] = 1.0;
    return x;
}

double dot(const double* coefficients, const Features& x, std::size_t n) {
    double sum = 0.0;
    for (std::size_t k = 0; k < n; ++k) sum += coefficients[k] * x[k];
    return sum;
}

// Returns the factor by which a sum has decayed after some rows.
double decay(double n_rows, double half_life) { return exp_of_negative(n_rows / half_life * kLog2); }

double identity(std::size_t k, std::size_t n) { return k + 1 < n ? 1.0 : 0.0; }

// The calibration of one half-life: its coefficients, second derivatives and decayed loss.
struct OneCalibration {
    double *coefficients, *curvature, *loss;
    std::size_t n;

    void add_curvature(const Features& x, double weight) {
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t j = 0; j <= i; ++j) curvature[i * n + j] += weight * (x[i] * x[j]);
    }

    void learn(const CalibrationSpec& spec, double half_life, std::span<const Features> rows,
               std::span<const bool> is_positive) {
        const auto n_rows = static_cast<double>(rows.size());
        const double keep = decay(n_rows, half_life), returning = (1.0 - keep) * spec.prior_rows;
        Features gradient{};
        double new_loss = 0.0;
        for (std::size_t at = 0; at < n * n; ++at) curvature[at] *= keep;
        for (std::size_t k = 0; k < n; ++k) {
            curvature[k * n + k] += returning;
            gradient[k] = returning * (coefficients[k] - identity(k, n));
        }
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const double z = dot(coefficients, rows[i], n), p = portable_logistic(z);
            new_loss += portable_log_loss(is_positive[i] ? z : -z);
            add_curvature(rows[i], p * (1.0 - p));
            for (std::size_t k = 0; k < n; ++k) gradient[k] += (p - (is_positive[i] ? 1.0 : 0.0)) * rows[i][k];
        }
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t j = 0; j < i; ++j) curvature[j * n + i] = curvature[i * n + j];
        take_step(spec, gradient);
        *loss = decay(n_rows, spec.loss_half_life) * *loss + new_loss;
    }

    void take_step(const CalibrationSpec& spec, Features step) {
        std::vector<double> factor(curvature, curvature + n * n);
        solve_positive_definite(factor.data(), step.data(), n);
        double size = 0.0;
        for (std::size_t k = 0; k < n; ++k) size = std::max(size, std::abs(step[k]));
        const double shrink = std::max(1.0, size / spec.max_step);
        for (std::size_t k = 0; k < n; ++k) {
            coefficients[k] -= step[k] / shrink;
            if (k + 1 < n) coefficients[k] = std::max(coefficients[k], spec.min_slope);
        }
    }
};

// Returns log(e^a_1 + ... + e^a_n).
double log_sum_exp(std::span<const double> logs) {
    const double largest = *std::ranges::max_element(logs);
    double sum = 0.0;
    for (const double value : logs) sum += exp_of_negative(largest - value);
    return largest + portable_log(sum);
}

}  // namespace

void learn_calibration(const CalibrationSpec& spec, std::span<const double> log_odds, std::span<const bool> is_positive,
                       const CalibrationState& state) {
    const std::size_t n = spec.edges.size();
    std::vector<Features> rows;
    for (std::size_t begin = 0; begin < log_odds.size(); begin += spec.block_rows) {
        const std::size_t n_rows = std::min(spec.block_rows, log_odds.size() - begin);
        rows.clear();
        for (const double z : log_odds.subspan(begin, n_rows)) rows.push_back(features_of(spec.edges, z));
        for (std::size_t l = 0; l < spec.half_lives.size(); ++l)
            OneCalibration{state.coefficients + l * n, state.curvature + l * n * n, state.losses + l, n}.learn(
                spec, spec.half_lives[l], rows, is_positive.subspan(begin, n_rows));
    }
}

void calibrate(std::span<const double> edges, std::span<const double> losses, const double* coefficients,
               std::span<const double> log_odds, double* out) {
    const double least = *std::ranges::min_element(losses);
    std::vector<double> positive(losses.size()), negative(losses.size());
    for (std::size_t i = 0; i < log_odds.size(); ++i) {
        const Features x = features_of(edges, log_odds[i]);
        for (std::size_t l = 0; l < losses.size(); ++l) {
            const double z = dot(coefficients + l * edges.size(), x, edges.size());
            positive[l] = least - losses[l] - portable_log_loss(z);
            negative[l] = least - losses[l] - portable_log_loss(-z);
        }
        out[i] = log_sum_exp(positive) - log_sum_exp(negative);
    }
}

}  // namespace steelyard
