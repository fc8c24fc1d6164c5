#include "ensemble/change_tests.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

// Compiled without floating-point contraction, so that results are bit-identical on every machine.

namespace steelyard {

namespace {

// Adds one to the count of `level` and returns the smoothed p-value of the new value.
double add_and_rank(double* counts, std::size_t n_levels, std::size_t level, double uniform) {
    counts[level] += 1.0;
    const double below = std::accumulate(counts, counts + level, 0.0);
    const double n = std::accumulate(counts + level, counts + n_levels, below);
    return (below + uniform * counts[level]) / n;
}

}  // namespace

void conformal_p_values(Rows<double> X, const ConformalColumns& columns, const double* uniform, double* p) {
    const std::size_t d = X.n_features, n_bins = columns.n_bins, half = n_bins / 2, n_values = X.n_rows * d;
    std::vector<double> folded(d * half);  // number of earlier rows at each distance from the middle bins
    for (std::size_t c = 0; c < d; ++c)
        for (std::size_t level = 0; level < half; ++level)
            folded[c * half + level] =
                columns.counts[c * n_bins + half + level] + columns.counts[c * n_bins + half - 1 - level];
    for (std::size_t i = 0; i < n_values; ++i) {
        const std::size_t c = i % d;
        const double* edges = columns.edges + c * (n_bins - 1);
        const auto bin = static_cast<std::size_t>(std::upper_bound(edges, edges + n_bins - 1, X.data[i]) - edges);
        const std::size_t level = bin >= half ? bin - half : half - 1 - bin;
        p[i] = add_and_rank(columns.counts + c * n_bins, n_bins, bin, uniform[i]);
        p[n_values + i] = add_and_rank(folded.data() + c * half, half, level, uniform[n_values + i]);
    }
}

void bet_on_columns(const double* p, std::size_t n_rows, std::size_t n_columns, double slope, double max_sum,
                    double* sums) {
    const std::size_t n_values = n_rows * n_columns;
    for (std::size_t i = 0; i < n_rows; ++i) {
        for (std::size_t c = 0; c < n_columns; ++c) {
            for (std::size_t half = 0; half < 2; ++half) {
                const double gain = slope * (p[half * n_values + i * n_columns + c] - 0.5);
                double &low = sums[(2 + half) * n_columns + c], &high = sums[half * n_columns + c];
                high = std::min((high + 1.0) * (1.0 + gain), max_sum);
                low = std::min((low + 1.0) * (1.0 - gain), max_sum);
            }
        }
    }
}

void bet_on_shares(std::span<const std::int64_t> codes, const double* uniform, const ShareBets& bets) {
    double n = std::accumulate(bets.counts, bets.counts + bets.n_classes, 0.0);
    for (std::size_t i = 0; i < codes.size(); ++i, n += 1.0) {
        for (std::size_t k = 0; k < bets.n_classes; ++k) {
            const double past = bets.counts[k], u = uniform[i * bets.n_classes + k];
            const bool is_class = static_cast<std::size_t>(codes[i]) == k;
            // Conformal p-value of the label; rows of the class have the lowest ranks.
            const double p = (is_class ? u * (past + 1.0) : past + u * (n - past + 1.0)) / (n + 1.0);
            const double share = (past + 0.5) / (n + 1.0);  // share of the class before the row
            for (std::size_t f = 0; f < bets.factors.size(); ++f) {
                const double high = std::min(bets.factors[f], 0.9 / share);
                const double bet = p <= share ? high : (1.0 - high * share) / (1.0 - share);
                double& sum = bets.sums[k * bets.factors.size() + f];
                sum = std::min((sum + 1.0) * bet, bets.max_sum);
            }
        }
        bets.counts[codes[i]] += 1.0;
    }
}

void add_hits(std::span<const std::int64_t> codes, std::span<const bool> is_hit, std::span<const double> keep,
              const HitRates& rates) {
    for (std::size_t term = 0; term < 2; ++term) {
        double *rows = rates.rows + term * rates.n_classes, *hits = rates.hits + term * rates.n_classes;
        for (std::size_t k = 0; k < rates.n_classes; ++k) rows[k] *= keep[term], hits[k] *= keep[term];
        for (std::size_t i = 0; i < codes.size(); ++i) rows[codes[i]] += 1.0, hits[codes[i]] += is_hit[i] ? 1.0 : 0.0;
    }
}

bool has_fallen(const HitRates& rates, const FallLimits& limits) {
    double n = 0.0, fall = 0.0, variance = 0.0;
    for (std::size_t k = 0; k < rates.n_classes; ++k) {
        const double n_short = rates.rows[k], n_long = rates.rows[rates.n_classes + k];
        if (std::min(n_short, n_long) < limits.min_rows) continue;
        const double short_rate = (rates.hits[k] + 0.5) / (n_short + 1.0);
        const double long_rate = (rates.hits[rates.n_classes + k] + 0.5) / (n_long + 1.0);
        // A decayed average with total weight w has the variance of a plain average over about 2 * w rows.
        variance += long_rate * (1.0 - long_rate) / (2.0 * n_short);
        fall += long_rate - short_rate, n += 1.0;
    }
    return n > 0.0 && fall / n > std::max(limits.min_fall, limits.min_deviations * std::sqrt(variance) / n);
}

}  // namespace steelyard
