// Conformal p-values of binned columns.
#pragma once

#include <cstddef>

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

}  // namespace steelyard
