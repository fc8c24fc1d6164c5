// Feature maps: transformations of rows to new features, for example random Fourier features.
// The result of a row is bit-identical in all batches, at all SIMD levels and with any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/rows.hpp"
#include "simd/loops_map.hpp"

namespace steelyard {

// Map of rows to `starts.size()` outputs. A value x of feature k is first transformed to (x - shift[k]) * scale[k].
// For cosine, rectified and sigmoid, the transformed value is rounded to 24 bits.
// For halving_2, the transformed value is rounded to a multiple of 2^-19 between -64 and 64.
struct FeatureMap {
    MapSpec spec;
    std::span<const double> shift, scale;
    const double* weights;  // shape (n_features, n_outputs), row-major
    std::span<const double> starts;

    std::size_t n_features() const { return shift.size(); }
    std::size_t n_outputs() const { return starts.size(); }
};

// Writes the outputs of all rows; `out` has the shape (n_rows, n_outputs).
void map_rows(const FeatureMap& map, Rows<double> rows, double* out, unsigned n_threads);

// Maps rows in CSR format with ascending columns in each row. The kinds halving and halving_2 are not supported.
void map_sparse_rows(const FeatureMap& map, std::span<const double> values, std::span<const std::int64_t> columns,
                     std::span<const std::int64_t> row_starts, double* out, unsigned n_threads);

// values = step * round(factor * values), where factor is a power of two.
void round_to_step(std::span<double> values, double factor, double step, unsigned n_threads);

}  // namespace steelyard
