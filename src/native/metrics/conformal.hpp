// Conformal p-values of binned columns.
#pragma once

#include <cstddef>

#include "common/rows.hpp"

namespace steelyard {

// Ranks of new rows among all earlier rows, by the bins of each column. Arrays are row-major.
struct ConformalColumns {
    const double* edges;  // bin edges, shape (n_columns, n_bins - 1), ascending
    double* counts;       // number of earlier rows of each bin, shape (n_columns, n_bins); new rows are added
    std::size_t n_bins;   // even
};

// Writes smoothed p-values, shape (2, n_rows, n_columns): of the bins, and of their distances from the middle.
// A p-value is (number of smaller values + u * number of equal values) / n, where u is the uniform random number
// of the same position, and the new value counts as equal.
void conformal_p_values(Rows<double> X, const ConformalColumns& columns, const double* uniform, double* p);

}  // namespace steelyard
