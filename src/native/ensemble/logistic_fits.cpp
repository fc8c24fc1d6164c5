#include "ensemble/logistic_fits.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "common/portable_math.hpp"
#include "common/sort.hpp"
#include "ensemble/small_system.hpp"
#include "simd/simd.hpp"

// Compiled without floating-point contraction, so that results are bit-identical on every machine.

namespace steelyard {

namespace {

constexpr int kNewtonSteps = 8;
constexpr double kNewtonTolerance = 1e-3;
constexpr double kMaxNewtonStep = 3.0;
constexpr double kSlopePenalty = 3e-3;  // ridge penalty of the slopes of a calibration
constexpr double kPlattPenalty = 1e-3;  // ridge penalty that pulls the slope of a Platt scaling towards 1
constexpr double kMinSlope = 1e-6, kMinPlattSlope = 1e-3;
// Each slope is at least min(0.3, 5 / n) times the other slope, where n is the size of the rarer class.
constexpr double kMaxLeastSlope = 0.3, kLeastSlopeRows = 5.0;
constexpr double kRowsForGrowth = 10.0;   // number of scores of a class for full growth beyond its limit
constexpr double kMaxBias = 5.0;          // limit of the log-odds at the middle between the classes
constexpr double kNormalQuantiles = 3.3;  // distance of the quantiles 0.05 and 0.95 of the normal distribution
constexpr double kMinShare = 1e-4;        // smallest class share in the log-loss at observed shares

// Rows are added in groups of kLanes, so that the compiler can use vectors of any width without changing a bit.
constexpr std::size_t kLanes = 8;

// Returns term(0) + ... + term(n - 1).
template <class Term>
double sum_of(std::size_t n, Term term) {
    std::array<double, kLanes> lanes{};
    std::size_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
        for (std::size_t k = 0; k < kLanes; ++k) lanes[k] += term(i + k);
    for (std::size_t k = 0; i + k < n; ++k) lanes[k] += term(i + k);
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

double mean(std::span<const double> values) {
    return sum_of(values.size(), [=](std::size_t i) { return values[i]; }) / static_cast<double>(values.size());
}

double dot(std::span<const double> x, std::span<const double> y) {
    return sum_of(x.size(), [=](std::size_t i) { return x[i] * y[i]; });
}

// Numbers of rows of both classes. A logistic regression gives both classes the same weight. As in Platt scaling,
// targets are less certain the fewer rows there are.
struct ClassSizes {
    double positive, negative;

    // Returns the weighted sums over rows of one class.
    LogisticSums sums(std::span<const double> x, double slope, double bias, bool is_positive) const {
        const double target = is_positive ? (positive + 1.0) / (positive + 2.0) : 1.0 / (negative + 2.0);
        const double weight = is_positive ? 0.5 / positive : 0.5 / negative;
        const LogisticSums s = loops().logistic.sums(x.data(), x.size(), slope, bias, target);
        return {weight * s.error, weight * s.error_x, weight * s.h, weight * s.h_x, weight * s.h_xx};
    }
};

LogisticSums operator+(const LogisticSums& a, const LogisticSums& b) {
    return {a.error + b.error, a.error_x + b.error_x, a.h + b.h, a.h_x + b.h_x, a.h_xx + b.h_xx};
}

double limited_step(double size) { return 1.0 / std::max(1.0, size / kMaxNewtonStep); }

// Logistic regression of the scaled scores of one expert, with slopes a and b below and above 0, and bias c.
struct SlopeFit {
    std::vector<double> positive, negative;                  // scaled scores of each class, ascending
    std::size_t n_positive_below = 0, n_negative_below = 0;  // number of scores below 0
    double a = 1.0, b = 1.0, c = 0.0;

    double newton_step();  // returns the size of the step
};

double SlopeFit::newton_step() {
    const ClassSizes sizes{static_cast<double>(positive.size()), static_cast<double>(negative.size())};
    const std::span<const double> p(positive), n(negative);
    const LogisticSums low =
        sizes.sums(p.first(n_positive_below), a, c, true) + sizes.sums(n.first(n_negative_below), a, c, false);
    const LogisticSums high =
        sizes.sums(p.subspan(n_positive_below), b, c, true) + sizes.sums(n.subspan(n_negative_below), b, c, false);
    const double g_a = low.error_x + kSlopePenalty * a, g_b = high.error_x + kSlopePenalty * b;
    const double h_aa = low.h_xx + kSlopePenalty, h_bb = high.h_xx + kSlopePenalty;
    // The mixed derivative by the two slopes is 0, so both slopes are eliminated from the system.
    const double step_c = (low.error + high.error - low.h_x * g_a / h_aa - high.h_x * g_b / h_bb) /
                          (low.h + high.h + 1e-9 - low.h_x * low.h_x / h_aa - high.h_x * high.h_x / h_bb);
    const double step_a = (g_a - low.h_x * step_c) / h_aa, step_b = (g_b - high.h_x * step_c) / h_bb;
    const double size = std::max({std::abs(step_a), std::abs(step_b), std::abs(step_c)});
    const double factor = limited_step(size);
    a -= factor * step_a, b -= factor * step_b, c -= factor * step_c;
    return size;
}

// Scores of one expert for the rows of each class, without unknown ones, ascending. In `both`, the scores of a rare
// class are repeated until it has about a tenth as many as the other one. Otherwise both quantiles of scale() would be
// scores of the frequent class, which may differ little, and the slopes of so large scaled scores would not converge.
struct SortedSides {
    std::vector<double> positive, negative, both;

    SortedSides(const RecentScores& recent, std::size_t expert) {
        const std::size_t n_experts = recent.scores.n_features;
        for (std::size_t i = 0; i < recent.scores.n_rows; ++i) {
            const double score = recent.scores.data[i * n_experts + expert];
            if (!std::isnan(score)) (i < recent.n_positive ? positive : negative).push_back(score);
        }
        sort_ascending(positive);
        sort_ascending(negative);
        const bool is_positive_rare = positive.size() < negative.size();
        const std::vector<double>&rare = is_positive_rare ? positive : negative,
              &frequent = is_positive_rare ? negative : positive;
        const std::size_t tenfold = 10 * std::max<std::size_t>(rare.size(), 1);
        const std::size_t copies = std::max<std::size_t>((frequent.size() + tenfold / 2) / tenfold, 1);
        std::vector<double> repeated;
        repeated.reserve(copies * rare.size());
        for (const double score : rare) repeated.insert(repeated.end(), copies, score);
        both.resize(repeated.size() + frequent.size());
        std::ranges::merge(repeated, frequent, both.begin());
    }

    // Twice the number of pairs in which the positive row scores higher; a tie counts as half a pair.
    double doubled_wins() const {
        std::size_t below = 0, not_above = 0, wins = 0;
        for (const double score : positive) {
            while (below < negative.size() && negative[below] < score) ++below;
            while (not_above < negative.size() && negative[not_above] <= score) ++not_above;
            wins += below + not_above;
        }
        return static_cast<double>(wins);
    }

    // Difference of the quantiles 0.05 and 0.95 as a multiple of that of the standard normal distribution, or 1.
    double scale() const {
        const std::size_t last = both.size() - 1;
        const auto at = [&](double q) { return both[static_cast<std::size_t>(q * static_cast<double>(last))]; };
        double spread = at(0.95) - at(0.05);
        if (!(spread > 0.0)) spread = both.back() - both.front();
        return spread > 0.0 ? spread / kNormalQuantiles : 1.0;
    }
};

double median(const std::vector<double>& ascending) {
    const std::size_t n = ascending.size();
    return 0.5 * (ascending[(n - 1) / 2] + ascending[n / 2]);
}

double compressed(double log_odds, const Limit& up, const Limit& down) {
    if (log_odds > up.value) return up.value + up.growth * portable_log(1.0 + (log_odds - up.value));
    if (log_odds < -down.value) return -down.value - down.growth * portable_log(1.0 + (-down.value - log_odds));
    return log_odds;
}

Limit limit_of(double n_rows, double max_linear) {
    return {std::min(max_linear, 1.0 + portable_log(1.0 + n_rows)), std::min(1.0, n_rows / kRowsForGrowth)};
}

// A calibration before its slopes are fitted, and its regression.
struct PendingCalibration {
    ExpertCalibration result;
    SlopeFit fit;
};

PendingCalibration prepared(std::size_t expert, SortedSides sides) {
    PendingCalibration made{};
    made.result.expert = expert;
    made.result.middle = 0.5 * (median(sides.positive) + median(sides.negative));
    made.result.scale = sides.scale();
    made.result.auc = sides.doubled_wins() /
                      (2.0 * static_cast<double>(sides.positive.size()) * static_cast<double>(sides.negative.size()));
    const auto scaled = [&](std::vector<double>& scores) {
        for (double& score : scores) score = (score - made.result.middle) / made.result.scale;
        return static_cast<std::size_t>(std::ranges::lower_bound(scores, 0.0) - scores.begin());
    };
    made.fit.n_positive_below = scaled(sides.positive), made.fit.n_negative_below = scaled(sides.negative);
    made.fit.positive = std::move(sides.positive), made.fit.negative = std::move(sides.negative);
    return made;
}

// Bounds the fitted slopes and bias, and computes the log-odds of all rows.
void finish(PendingCalibration& made, Rows<double> scores, double max_linear) {
    ExpertCalibration& result = made.result;
    const SlopeFit& fit = made.fit;
    const auto n_positive = static_cast<double>(fit.positive.size()),
               n_negative = static_cast<double>(fit.negative.size());
    const double below = std::max(fit.a, kMinSlope), above = std::max(fit.b, kMinSlope);
    // With few rows a slope may become 0, and the scores below or above the middle would lose their order.
    const double least = std::min(kMaxLeastSlope, kLeastSlopeRows / std::min(n_positive, n_negative));
    result.below = std::max(below, least * above);
    result.above = std::max(above, least * below);
    result.up = limit_of(n_positive, max_linear), result.down = limit_of(n_negative, max_linear);
    result.bias = std::clamp(std::clamp(fit.c, -kMaxBias, kMaxBias), -result.down.value, result.up.value);
    result.log_odds.resize(scores.n_rows);
    for (std::size_t i = 0; i < scores.n_rows; ++i) {
        const double x = (scores.data[i * scores.n_features + result.expert] - result.middle) / result.scale;
        const double linear = (x < 0.0 ? result.below : result.above) * x + result.bias;
        result.log_odds[i] = std::isnan(x) ? 0.0 : compressed(linear, result.up, result.down);
    }
}

}  // namespace

PlattScaling platt_scaling(std::span<const double> scores, std::size_t n_positive) {
    const ClassSizes sizes{static_cast<double>(n_positive), static_cast<double>(scores.size() - n_positive)};
    PlattScaling fit{1.0, 0.0};
    for (int step = 0; step < kNewtonSteps; ++step) {
        const LogisticSums s = sizes.sums(scores.first(n_positive), fit.slope, fit.bias, true) +
                               sizes.sums(scores.subspan(n_positive), fit.slope, fit.bias, false);
        const double g_slope = s.error_x + kPlattPenalty * (fit.slope - 1.0), g_bias = s.error;
        const double h_slope = s.h_xx + kPlattPenalty, h_bias = s.h + 1e-9;
        const double determinant = h_slope * h_bias - s.h_x * s.h_x;
        const double step_slope = (h_bias * g_slope - s.h_x * g_bias) / determinant;
        const double step_bias = (h_slope * g_bias - s.h_x * g_slope) / determinant;
        const double size = std::max(std::abs(step_slope), std::abs(step_bias));
        fit.slope -= limited_step(size) * step_slope, fit.bias -= limited_step(size) * step_bias;
        if (size < kNewtonTolerance) break;
    }
    fit.slope = std::max(fit.slope, kMinPlattSlope);
    return fit;
}

std::vector<ExpertCalibration> fit_calibrations(const RecentScores& recent, std::span<const bool> is_candidate,
                                                std::size_t min_rows, double max_linear) {
    std::vector<PendingCalibration> pending;
    for (std::size_t expert = 0; expert < is_candidate.size(); ++expert) {
        if (!is_candidate[expert]) continue;
        SortedSides sides(recent, expert);
        if (std::min(sides.positive.size(), sides.negative.size()) < min_rows) continue;
        pending.push_back(prepared(expert, std::move(sides)));
    }
    // All experts take the same number of steps.
    double size = pending.empty() ? 0.0 : kMaxNewtonStep;
    for (int step = 0; step < kNewtonSteps && size >= kNewtonTolerance; ++step) {
        size = 0.0;
        for (PendingCalibration& one : pending) size = std::max(size, one.fit.newton_step());
    }
    std::vector<ExpertCalibration> fitted;
    for (PendingCalibration& one : pending) {
        finish(one, recent.scores, max_linear);
        fitted.push_back(std::move(one.result));
    }
    return fitted;
}

namespace {

// Returns the mean log-loss of both classes, weighted by the share of positive rows, after adding `shift` to the
// log-odds.
double weighted_loss(std::span<const double> log_odds, std::size_t n_positive, double shift, double share) {
    std::vector<double> losses(log_odds.size());
    for (std::size_t i = 0; i < n_positive; ++i) losses[i] = log_odds[i] + shift;
    for (std::size_t i = n_positive; i < losses.size(); ++i) losses[i] = -(log_odds[i] + shift);
    loops().logistic.log_loss(losses.data(), losses.size());
    const std::span<const double> all(losses);
    return share * mean(all.first(n_positive)) + (1.0 - share) * mean(all.subspan(n_positive));
}

double limited_share(double share) { return std::min(std::max(share, kMinShare), 1.0 - kMinShare); }

double log_odds_of(double share) { return portable_log(share) - portable_log(1.0 - share); }

}  // namespace

void weigh_calibrations(std::span<const ExpertCalibration> fitted, std::size_t n_positive, double share,
                        const Sharpness& sharpness, double least, const double* priors, double* weights) {
    share = limited_share(share);
    const double shift = log_odds_of(share);
    const double entropy = -(share * portable_log(share) + (1.0 - share) * portable_log(1.0 - share));
    double best_auc = 0.0, best_exponent = -INFINITY;
    for (std::size_t e = 0; e < fitted.size(); ++e) {
        const std::span<const double> log_odds(fitted[e].log_odds);
        weights[e] = sharpness.auc * fitted[e].auc -
                     sharpness.balanced_loss * weighted_loss(log_odds, n_positive, 0.0, 0.5) -
                     sharpness.observed_loss * weighted_loss(log_odds, n_positive, shift, share) / entropy;
        best_auc = std::max(best_auc, fitted[e].auc), best_exponent = std::max(best_exponent, weights[e]);
    }
    double largest = 0.0;
    for (std::size_t e = 0; e < fitted.size(); ++e) {
        const bool is_useful = fitted[e].auc > 0.5 || best_auc <= 0.5;
        weights[e] = is_useful ? priors[e] * exp_of_negative(best_exponent - weights[e]) : 0.0;
        largest = std::max(largest, weights[e]);
    }
    double total = 0.0;
    for (std::size_t e = 0; e < fitted.size(); ++e) {
        if (!(largest > 0.0)) weights[e] = fitted[e].auc == best_auc ? 1.0 : 0.0;
        if (weights[e] < least * largest) weights[e] = 0.0;
        total += weights[e];
    }
    for (std::size_t e = 0; e < fitted.size(); ++e) weights[e] /= total;
}

void add_weighted(std::span<const double> values, double weight, double* out) {
    for (std::size_t i = 0; i < values.size(); ++i) out[i] += weight * values[i];
}

namespace {

constexpr double kExcess[] = {0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 1e3, 1e4, 1e6, 1e9};

}  // namespace

const std::span<const double> kTableExcess(kExcess);

void calibration_table(const ExpertCalibration& fitted, double* knots, double* values) {
    const std::size_t n = kTableExcess.size();
    const double below = fitted.below / fitted.scale, above = fitted.above / fitted.scale;
    knots[n] = fitted.middle, values[n] = fitted.bias;
    for (std::size_t k = 0; k < n; ++k) {
        const double excess = kTableExcess[k], beyond = portable_log(1.0 + excess);
        knots[n - 1 - k] = fitted.middle - (fitted.bias + fitted.down.value + excess) / below;
        knots[n + 1 + k] = fitted.middle + (fitted.up.value + excess - fitted.bias) / above;
        values[n - 1 - k] = -(fitted.down.value + fitted.down.growth * beyond);
        values[n + 1 + k] = fitted.up.value + fitted.up.growth * beyond;
    }
}

namespace {

// Log-odds of the experts that have any, one array per expert, and weights and labels of the rows.
struct CorrectionColumns {
    std::vector<std::size_t> experts;
    std::vector<std::vector<double>> log_odds;
    std::vector<double> row_weights, labels;

    explicit CorrectionColumns(const CorrectionProblem& problem) {
        const auto& [rows, places, weights, share, ridge] = problem;
        const std::size_t n = rows.n_rows, n_experts = rows.n_features;
        for (std::size_t e = 0; e < n_experts; ++e) {
            const double* scores = rows.data + e;
            bool is_known = false;
            for (std::size_t i = 0; i < n && !is_known; ++i) is_known = scores[i * n_experts] != 0.0;
            if (is_known) experts.push_back(e), log_odds.emplace_back(n);
        }
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t k = 0; k < experts.size(); ++k) log_odds[k][i] = rows.data[i * n_experts + experts[k]];
        const auto n_positive = static_cast<double>(std::ranges::count(places, 1));
        const auto n_rows = static_cast<double>(n);
        const double of_class[] = {n_rows * (1.0 - share) / (n_rows - n_positive), n_rows * share / n_positive};
        row_weights.resize(n), labels.resize(n);
        for (std::size_t i = 0; i < n; ++i)
            row_weights[i] = of_class[places[i]], labels[i] = static_cast<double>(places[i]);
    }

    // Writes the derivative of the loss by the log-odds of each row, for a weighted sum of the experts.
    void write_errors(const std::vector<double>& weights, double shift, std::vector<double>& errors) const {
        std::ranges::fill(errors, shift);
        for (std::size_t e = 0; e < experts.size(); ++e)
            for (std::size_t i = 0; i < errors.size(); ++i) errors[i] += weights[e] * log_odds[e][i];
        loops().logistic.logistic(errors.data(), errors.size());
        for (std::size_t i = 0; i < errors.size(); ++i) errors[i] = row_weights[i] * (errors[i] - labels[i]);
    }

    // Upper bound of the second derivatives of the loss, a quarter of the weighted sums of products.
    std::vector<double> curvature(double ridge) const {
        const std::size_t n = experts.size();
        std::vector<double> matrix(n * n), weighted(row_weights.size());
        for (std::size_t e = 0; e < n; ++e) {
            for (std::size_t i = 0; i < weighted.size(); ++i) weighted[i] = row_weights[i] * log_odds[e][i];
            for (std::size_t f = 0; f <= e; ++f) matrix[e * n + f] = 0.25 * dot(weighted, log_odds[f]);
            matrix[e * n + e] += ridge;
        }
        return matrix;
    }
};

}  // namespace

std::vector<double> solve_correction(const CorrectionProblem& problem, unsigned n_steps) {
    const CorrectionColumns columns(problem);
    const std::size_t n = columns.experts.size();
    const std::vector<double> curvature = columns.curvature(problem.ridge);
    const double shift = log_odds_of(problem.share);
    std::vector<double> values(n), weights(n), step(n), factor, errors(columns.labels.size());
    for (unsigned k = 0; k < n_steps; ++k) {
        for (std::size_t e = 0; e < n; ++e) weights[e] = problem.weights[columns.experts[e]] + values[e];
        columns.write_errors(weights, shift, errors);
        for (std::size_t e = 0; e < n; ++e) step[e] = dot(columns.log_odds[e], errors) + problem.ridge * values[e];
        factor = curvature;
        solve_positive_definite(factor.data(), step.data(), n);
        for (std::size_t e = 0; e < n; ++e) values[e] -= step[e];
    }
    std::vector<double> all(problem.weights.size());
    for (std::size_t e = 0; e < n; ++e) all[columns.experts[e]] = values[e];
    return all;
}

}  // namespace steelyard
