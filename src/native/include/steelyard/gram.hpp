// Class-wise Gram matrices of extended rows: the one state of the proximal learners.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "steelyard/rows.hpp"

namespace steelyard {

// Largest |x| of some values; NaN if there is one, else infinity if there is one.
template <class T>
double largest_magnitude(std::span<const T> values, unsigned n_threads = 1);

// grams[c] += sum over rows i with codes[i] == c of weights[i] * e e', with e = [x - origin, -1].
//
// Each of the grams is a matrix of (n_features + 1)^2, row-major; only the lower triangles are written.
// weights may be empty (all 1) and may be negative. Codes must lie below grams.size();
// rows with a negative code are passed over. n_rows must be below 2^32.
// The result does not depend on n_threads.
template <class T>
void add_grams(Rows<T> rows, std::span<const std::int32_t> codes, std::span<const double> weights,
               std::span<const double> origin, std::span<double* const> grams, unsigned n_threads);

// One class of a sparse table in compressed rows, relative to origin 0: gram += sum of weights[i] e e'
// over rows with codes[i] == code, lower triangle, without ever forming a dense row.
// Column indices must be sorted and unique within a row.
template <class Index>
void add_gram_sparse(std::span<const double> values, std::span<const Index> columns, std::span<const Index> row_starts,
                     std::span<const std::int32_t> codes, std::span<const double> weights, std::int32_t code,
                     std::size_t n_features, double* gram);

}  // namespace steelyard
