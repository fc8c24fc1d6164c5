// Online calibration of log-odds by piecewise linear functions with several half-lives.
// Every sum has a fixed order, so the results are bit-identical on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace steelyard {

// A calibration is a sum of slopes[k] * feature k and a bias, where feature k is the part of the log-odds between
// edges[k] and edges[k + 1], counted from 0. Arrays have one entry, or one row, per half-life.
struct CalibrationState {
    double* coefficients;  // slopes and bias, shape (n_half_lives, n_edges)
    double* curvature;     // decayed sums of second derivatives, shape (n_half_lives, n_edges, n_edges)
    double* losses;        // decayed log-losses
};

struct CalibrationSpec {
    std::span<const double> edges;       // ascending, at most kMaxEdges
    std::span<const double> half_lives;  // in rows
    double loss_half_life;               // in rows
    double prior_rows;                   // ridge penalty that pulls each calibration towards the identity
    double max_step, min_slope;
    std::size_t block_rows;  // number of rows per step of Newton's method
};

constexpr std::size_t kMaxEdges = 16;

// Takes one step of Newton's method per block of labelled rows.
void learn_calibration(const CalibrationSpec& spec, std::span<const double> log_odds, std::span<const bool> is_positive,
                       const CalibrationState& state);

// Writes the log-odds of the mean probability of the calibrations, weighted by exp(-decayed loss).
void calibrate(std::span<const double> edges, std::span<const double> losses, const double* coefficients,
               std::span<const double> log_odds, double* out);

}  // namespace steelyard
