// Piecewise linear functions of columns, and weighted sums of such functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/rows.hpp"

namespace steelyard {

// One piecewise linear function per column, all with the same number of knots.
// The arrays are row-major with shape (n_knots, n_columns).
struct ColumnPieces {
    const double* knots;  // positions of the knots, ascending in each column
    const double* values;
    const double* slopes;  // slope of the piece that begins at the knot
    std::size_t n_knots;   // number of knots, at least 1
};

// Applies the function of each column to the values of that column. A function is constant below its first knot.
// Writes n_rows * n_features values.
void apply_pieces(Rows<double> X, const ColumnPieces& pieces, double* out) noexcept;

// Concatenated piecewise linear functions: function f has the knots starts[f] .. starts[f + 1] - 1, ascending.
struct Lookups {
    std::span<const double> knots, values, weights;
    std::span<const std::int64_t> starts;
};

// Writes the function of each column, applied to the values of that column, and 0 for NaN and for functions with one
// knot. The weights are not used.
void apply_lookups(Rows<double> X, const Lookups& lookups, double* out) noexcept;

// out[i] = weighted sum of the functions of row i, where each function is applied to the value of its column.
// Functions are constant outside their knots. NaN values and functions of weight zero contribute nothing.
void sum_lookups(Rows<double> X, const Lookups& lookups, double* out) noexcept;

}  // namespace steelyard
