// Functions that are linear between knots: ranks of values, and what a score says among known ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/rows.hpp"

namespace steelyard {

// One function a column, all with as many knots: values and slopes at knots, row by row, (n_knots, n_columns).
struct ColumnPieces {
    const double* knots;  // rising down every column
    const double* values;
    const double* slopes;  // of the piece that begins there
    std::size_t n_knots;   // at least 1
};

// What the functions make of the values of rows; constant before the first knot. Writes n_rows * n_features.
void apply_pieces(Rows<double> X, const ColumnPieces& pieces, double* out) noexcept;

// Functions one behind the other: function f has the knots from starts[f] to starts[f + 1], rising.
struct Lookups {
    std::span<const double> knots, values, weights;
    std::span<const std::int64_t> starts;
};

// Of every row the weighted sum of functions of its values, one function a column; constant beyond both ends. A value
// that is not a number counts nothing, as does a function without weight.
void sum_lookups(Rows<double> X, const Lookups& lookups, double* out) noexcept;

// Scores of two sides, rising: the first `n_positive` rows are positive, and `order` says which row stands where.
struct RankedSides {
    std::span<const double> ranked;
    std::span<const std::int64_t> order;
    std::size_t n_positive;
};

// Of every place the share of rows that stand below, half of those that stand level with it counted, both sides alike.
// Returns twice the number of pairs that stand as they should, a positive above a negative; level ones count one.
std::int64_t rank_levels(const RankedSides& sides, double* levels) noexcept;

}  // namespace steelyard
