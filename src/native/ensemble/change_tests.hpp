// Anytime-valid tests of columns and class shares (e-detectors), and decayed hit rates.
// Every sum has a fixed order, so the results are bit-identical on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/rows.hpp"

namespace steelyard {

// Bins of each column and the number of earlier rows in each bin. Arrays are row-major.
struct ConformalColumns {
    const double* edges;  // bin edges, shape (n_columns, n_bins - 1), ascending
    double* counts;       // number of earlier rows of each bin, shape (n_columns, n_bins); new rows are added
    std::size_t n_bins;   // even
};

// Writes smoothed p-values of shape (2, n_rows, n_columns).
// The first half are p-values of the bin of each value, the second half of the distance of this bin from the middle.
// A p-value is (number of smaller values + u * number of equal values) / n, where the n values include the new one.
// u is the entry of `uniform` with the same position as the p-value.
void conformal_p_values(Rows<double> X, const ConformalColumns& columns, const double* uniform, double* p);

// Updates Shiryaev-Roberts sums S = (S + 1) * bet, of shape (4, n_columns), with the p-values of conformal_p_values().
// The bets are 1 + slope * (p - 1/2) for both halves of p, then 1 - slope * (p - 1/2).
void bet_on_columns(const double* p, std::size_t n_rows, std::size_t n_columns, double slope, double max_sum,
                    double* sums);

// Sums of bets on the class shares, of shape (n_classes, n_factors). A bet assumes that the share of a class has
// changed by a factor.
struct ShareBets {
    std::span<const double> factors;
    double max_sum;
    double* sums;    // shape (n_classes, n_factors)
    double* counts;  // number of earlier rows of each class; new rows are added
    std::size_t n_classes;
};

// Bets on new rows in stream order. `uniform` has the shape (n_rows, n_classes).
void bet_on_shares(std::span<const std::int64_t> codes, const double* uniform, const ShareBets& bets);

// Decayed numbers of rows and of hits of each class, with a short and a long half-life. The short-term ones come first.
struct HitRates {
    double* rows;  // shape (2, n_classes)
    double* hits;  // shape (2, n_classes)
    std::size_t n_classes;
};

// Limits for the fall of the mean hit rate below its long-term average that counts as a drift.
struct FallLimits {
    double min_rows;        // decayed number of rows of a class for a comparison
    double min_deviations;  // in standard deviations
    double min_fall;
};

// Adds labelled rows; `keep` are the factors by which the earlier rows have decayed.
void add_hits(std::span<const std::int64_t> codes, std::span<const bool> is_hit, std::span<const double> keep,
              const HitRates& rates);

// Returns whether the short-term hit rate, averaged over classes, is significantly lower than the long-term one.
bool has_fallen(const HitRates& rates, const FallLimits& limits);

}  // namespace steelyard
