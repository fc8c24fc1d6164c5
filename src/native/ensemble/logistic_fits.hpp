// Small logistic regressions of the ensemble: calibration of expert scores, Platt scaling and the weight correction.
// Every sum has a fixed order, so the results are bit-identical on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/rows.hpp"

namespace steelyard {

// Log-odds `slope * score + bias` of positive rows.
struct PlattScaling {
    double slope, bias;
};

// Fits slope and bias by Newton's method; both classes have the same weight.
// The first `n_positive` scores are those of positive rows. There is at least one row of each class.
PlattScaling platt_scaling(std::span<const double> scores, std::size_t n_positive);

// Log-odds up to which a calibration is linear, and the factor of the logarithmic growth beyond.
struct Limit {
    double value, growth;
};

// Calibration of one expert: log-odds with one slope below and one above the middle between the classes, compressed to
// logarithmic growth beyond the limits.
struct ExpertCalibration {
    std::size_t expert;
    double middle, scale;       // x = (score - middle) / scale
    double below, above, bias;  // log-odds = below * min(x, 0) + above * max(x, 0) + bias
    Limit up, down;             // of positive and of negative log-odds
    double auc;
    std::vector<double> log_odds;  // one number per row; 0 if the score is unknown
};

// Recent scores of all experts, one row per stream row, positive rows first. An unknown score is NaN.
struct RecentScores {
    Rows<double> scores;
    std::size_t n_positive;
};

// Fits the calibrations of the experts with `is_candidate` and at least `min_rows` known scores of each class.
// Log-odds are linear up to 1 + log(1 + number of known scores of the class), at most `max_linear`. They grow
// logarithmically beyond, and less if there are fewer than ten scores: early false alarms would else keep the highest
// scores of the stream.
std::vector<ExpertCalibration> fit_calibrations(const RecentScores& recent, std::span<const bool> is_candidate,
                                                std::size_t min_rows, double max_linear);

// Factors of the exponent of the expert weights: AUC, log-loss with equal class weights, and relative log-loss with the
// observed class shares.
struct Sharpness {
    double auc, balanced_loss, observed_loss;
};

// Writes weights[i] = prior * exp(sharpness . measures) of fitted[i], with sum 1. `share` is the share of positive
// rows. Experts not better than chance get 0, unless all are; so do weights below `least` times the largest one.
void weigh_calibrations(std::span<const ExpertCalibration> fitted, std::size_t n_positive, double share,
                        const Sharpness& sharpness, double least, const double* priors, double* weights);

// out[i] += weight * values[i]
void add_weighted(std::span<const double> values, double weight, double* out);

// Knots and values of the table that approximates the calibration: 2 * kTableExcess.size() + 1 numbers each.
extern const std::span<const double> kTableExcess;  // knots beyond the linear part, as linear log-odds minus the limit
void calibration_table(const ExpertCalibration& fitted, double* knots, double* values);

// Ridge logistic regression of labels on the log-odds of all experts, as a correction of their weights.
struct CorrectionProblem {
    Rows<double> log_odds;                 // one row per stream row, one column per expert
    std::span<const std::int64_t> labels;  // 0 or 1, at least one of each
    std::span<const double> weights;       // weights of the experts before the correction
    double share;                          // share of positive rows
    double ridge;                          // penalty of the squared corrections
};

// Returns the correction after some steps, each of which minimizes a quadratic upper bound of the loss, starting at 0.
std::vector<double> solve_correction(const CorrectionProblem& problem, unsigned n_steps);

}  // namespace steelyard
