// Binning: replaces each value of a table by the number of its bin.
// Bins are stored in one byte, or in two bytes for columns with many categories.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/rows.hpp"

namespace steelyard {

constexpr std::size_t kMaxBins = 256;          // maximum number of bins of a numeric column
constexpr std::size_t kMaxCategories = 65535;  // category codes of at least this number are treated as missing

struct BinnedColumn {
    std::int32_t feature;  // column of the table
    bool is_category;
    bool has_missing;             // whether some values are missing; missing values are in bin n_bins()
    bool is_wide;                 // whether bins are stored in two bytes
    std::vector<double> borders;  // numeric column: bin b contains values above border b - 1 and up to border b
    std::vector<std::int32_t> categories;  // category column: code of each bin, ascending

    std::size_t n_bins() const { return is_category ? categories.size() : borders.size() + 1; }
};

// Binned columns, without constant columns. Missing values of a column are in an additional last bin.
// In a category column, missing values are NaN, negative codes, and codes of at least kMaxCategories.
// Categories with fewer rows than `min_rows_per_category` are also treated as missing.
struct BinnedRows {
    std::size_t n_rows = 0;
    std::vector<BinnedColumn> columns;
    std::vector<std::size_t> place;        // index of each column among the narrow or the wide columns
    std::vector<std::uint8_t> bins;        // bins of narrow columns, shape (narrow columns, n_rows)
    std::vector<std::uint16_t> wide_bins;  // bins of wide columns, shape (wide columns, n_rows)

    const std::uint8_t* column(std::size_t c) const { return bins.data() + place[c] * n_rows; }
    const std::uint16_t* wide_column(std::size_t c) const { return wide_bins.data() + place[c] * n_rows; }
};

struct BinningSettings {
    std::size_t max_bins;         // maximum number of bins of a numeric column
    std::size_t max_narrow_bins;  // columns with more categories are wide
    std::size_t min_rows_per_category;
    unsigned n_threads;
};

// Bins all columns. Borders of numeric columns are quantiles of 32 * max_bins rows, the same number from each class.
// If a column is constant in the sampled rows, its borders are computed from all rows.
// `is_category` has one entry per column, or is empty.
BinnedRows bin_rows(Rows<double> X, std::span<const std::int64_t> codes, std::size_t n_classes,
                    std::span<const std::uint8_t> is_category, const BinningSettings& settings);

}  // namespace steelyard
