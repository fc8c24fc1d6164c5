#include "trees/binning.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/threads.hpp"

// Compiled without floating-point contraction: a fused multiply-add rounds differently, and not every CPU has one.

namespace steelyard {

namespace {

constexpr std::size_t kSampleRowsPerBin = 32;
// Number of rows that are binned column by column while they are in the cache.
constexpr std::size_t kBinningBlockRows = 1024;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Returns about n_sampled row numbers, evenly spaced in each class.
// Each class contributes the same number of rows, or all its rows if it has fewer.
std::vector<std::size_t> sample_rows(std::span<const std::int64_t> codes, std::size_t n_classes,
                                     std::size_t n_sampled) {
    const std::size_t max_rows = std::max<std::size_t>(n_sampled / n_classes, 1);
    std::vector<std::vector<std::size_t>> rows_of_class(n_classes);
    for (std::size_t r = 0; r < codes.size(); ++r) rows_of_class[static_cast<std::size_t>(codes[r])].push_back(r);
    std::vector<std::size_t> sample;
    for (const auto& rows : rows_of_class) {
        const std::size_t n = std::min(rows.size(), max_rows);
        for (std::size_t i = 0; i < n; ++i) sample.push_back(rows[i * rows.size() / n]);
    }
    return sample;
}

// Sorts numbers without NaN by their bits, eleven at a time from the lowest to the highest (radix sort).
// A comparison sort takes three times as long, because the processor mispredicts half of the comparisons.
void sort_numbers(std::vector<double>& values) {
    constexpr int kDigitBits = 11, kDigits = 6;
    constexpr std::size_t kDigitValues = std::size_t{1} << kDigitBits;
    constexpr std::size_t kMinValues = 1000;  // fewer values are sorted faster by comparisons
    constexpr std::uint64_t sign = std::uint64_t{1} << 63;
    const std::size_t n = values.size();
    if (n < kMinValues) return std::sort(values.begin(), values.end());
    std::vector<std::uint64_t> keys(n), sorted(n);
    std::vector<std::uint32_t> counts(kDigits * kDigitValues, 0);
    const auto digit = [](std::uint64_t key, int d) { return (key >> (d * kDigitBits)) & (kDigitValues - 1); };
    for (std::size_t i = 0; i < n; ++i) {
        const auto bits = std::bit_cast<std::uint64_t>(values[i] + 0.0);   // both zeros have one key
        keys[i] = bits ^ ((bits & sign) != 0 ? ~std::uint64_t{0} : sign);  // keys have the order of the numbers
        for (int d = 0; d < kDigits; ++d) ++counts[static_cast<std::size_t>(d) * kDigitValues + digit(keys[i], d)];
    }
    for (int d = 0; d < kDigits; ++d) {
        std::uint32_t* const begin = counts.data() + static_cast<std::size_t>(d) * kDigitValues;
        if (begin[digit(keys[0], d)] == n) continue;  // all numbers have the same digit
        std::exclusive_scan(begin, begin + kDigitValues, begin, std::uint32_t{0});
        for (const std::uint64_t key : keys) sorted[begin[digit(key, d)]++] = key;
        keys.swap(sorted);
    }
    for (std::size_t i = 0; i < n; ++i)
        values[i] = std::bit_cast<double>(keys[i] ^ ((keys[i] & sign) != 0 ? sign : ~std::uint64_t{0}));
}

// Returns midpoints between distinct values.
// If there are more than `max_bins` distinct values, only midpoints at quantiles are returned.
std::vector<double> find_borders(std::vector<double>& values, std::size_t max_bins) {
    sort_numbers(values);
    const std::size_t n = values.size();
    std::size_t n_distinct = 1;
    for (std::size_t i = 1; i < n; ++i) n_distinct += values[i] != values[i - 1];
    std::vector<double> borders;
    for (std::size_t i = 1; i < n; ++i) {
        const double low = values[i - 1], high = values[i];
        if (low == high || (n_distinct > max_bins && i * max_bins < (borders.size() + 1) * n)) continue;
        const double middle = 0.5 * low + 0.5 * high;
        // `low` is also used if the midpoint is NaN (between infinite values).
        borders.push_back(middle < high ? middle : low);
    }
    return borders;
}

struct ColumnRange {
    double min = kInfinity, max = -kInfinity;
    bool has_nan = false;
};

std::vector<ColumnRange> column_ranges(Rows<double> X) {
    std::vector<ColumnRange> ranges(X.n_features);
    for (std::size_t r = 0; r < X.n_rows; ++r) {
        const double* row = X.data + r * X.n_features;
        for (std::size_t c = 0; c < X.n_features; ++c) {
            ColumnRange& range = ranges[c];
            range.min = row[c] < range.min ? row[c] : range.min;
            range.max = row[c] > range.max ? row[c] : range.max;
            range.has_nan |= row[c] != row[c];
        }
    }
    return ranges;
}

BinnedColumn numeric_column(Rows<double> X, std::size_t c, const ColumnRange& range,
                            const std::vector<std::size_t>& sample, std::size_t max_bins) {
    BinnedColumn column{static_cast<std::int32_t>(c), false, range.has_nan, false, {}, {}};
    if (!(range.min < range.max)) return column;
    std::vector<double> values;
    const auto add = [&](std::size_t r) {
        const double value = X.data[r * X.n_features + c];
        if (value == value) values.push_back(value);
    };
    const std::size_t max_numeric = max_bins - range.has_nan;
    for (const std::size_t r : sample) add(r);
    column.borders = find_borders(values, max_numeric);
    if (!column.borders.empty()) return column;
    values.clear();
    for (std::size_t r = 0; r < X.n_rows; ++r) add(r);
    column.borders = find_borders(values, max_numeric);
    return column;
}

// Returns the code of a category, or kMaxCategories for a value that is treated as missing.
std::size_t category_code(double value) {
    return value >= 0.0 && value < static_cast<double>(kMaxCategories) ? static_cast<std::size_t>(value)
                                                                       : kMaxCategories;
}

BinnedColumn category_column(Rows<double> X, std::size_t c, const BinningSettings& settings) {
    std::vector<std::size_t> n_rows(kMaxCategories + 1, 0);
    for (std::size_t r = 0; r < X.n_rows; ++r) ++n_rows[category_code(X.data[r * X.n_features + c])];
    BinnedColumn column{static_cast<std::int32_t>(c), true, false, false, {}, {}};
    const std::size_t min_rows = std::max<std::size_t>(settings.min_rows_per_category, 1);
    for (std::size_t code = 0; code < kMaxCategories; ++code)
        if (n_rows[code] >= min_rows) column.categories.push_back(static_cast<std::int32_t>(code));
    std::size_t n_binned = 0;
    for (const std::int32_t code : column.categories) n_binned += n_rows[static_cast<std::size_t>(code)];
    column.has_missing = n_binned < X.n_rows;
    column.is_wide = column.n_bins() + 1 > settings.max_narrow_bins;
    return column;
}

// Writes the bins of `n` values with the given stride.
void bin_numeric(const BinnedColumn& column, const double* values, std::size_t stride, std::size_t n,
                 std::uint8_t* out) {
    // Infinite borders pad the array, so that every binary search has the same length and no branch.
    std::array<double, kMaxBins> borders;
    const std::size_t half = column.borders.size() < 64 ? 32 : 128;
    std::fill_n(borders.begin(), 2 * half, kInfinity);
    std::ranges::copy(column.borders, borders.begin());
    const auto missing = static_cast<std::uint8_t>(column.n_bins());
    for (std::size_t i = 0; i < n; ++i) {
        const double value = values[i * stride];
        std::size_t bin = 0;
        for (std::size_t step = half; step > 0; step /= 2) bin += borders[bin + step - 1] < value ? step : 0;
        out[i] = value == value ? static_cast<std::uint8_t>(bin) : missing;
    }
}

// Returns the bin of every category code. The entry kMaxCategories is the bin of missing values.
std::vector<std::uint16_t> category_table(const BinnedColumn& column) {
    std::vector<std::uint16_t> bin_of(kMaxCategories + 1, static_cast<std::uint16_t>(column.n_bins()));
    for (std::size_t b = 0; b < column.n_bins(); ++b)
        bin_of[static_cast<std::size_t>(column.categories[b])] = static_cast<std::uint16_t>(b);
    return bin_of;
}

template <class Bin>
void bin_categories(const std::vector<std::uint16_t>& table, const double* values, std::size_t stride, std::size_t n,
                    Bin* out) {
    for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<Bin>(table[category_code(values[i * stride])]);
}

}  // namespace

BinnedRows bin_rows(Rows<double> X, std::span<const std::int64_t> codes, std::size_t n_classes,
                    std::span<const std::uint8_t> is_category, const BinningSettings& settings) {
    BinnedRows out;
    out.n_rows = X.n_rows;
    const std::vector<std::size_t> sample = sample_rows(codes, n_classes, kSampleRowsPerBin * settings.max_bins);
    const std::vector<ColumnRange> ranges = column_ranges(X);
    for (std::size_t c = 0; c < X.n_features; ++c) {
        BinnedColumn column = !is_category.empty() && is_category[c] != 0
                                  ? category_column(X, c, settings)
                                  : numeric_column(X, c, ranges[c], sample, settings.max_bins);
        if (column.n_bins() + column.has_missing > 1) out.columns.push_back(std::move(column));
    }
    const std::size_t width = out.columns.size();
    std::size_t n_narrow = 0, n_wide = 0;
    std::vector<std::vector<std::uint16_t>> tables(width);
    for (std::size_t c = 0; c < width; ++c) {
        out.place.push_back(out.columns[c].is_wide ? n_wide++ : n_narrow++);
        if (out.columns[c].is_category) tables[c] = category_table(out.columns[c]);
    }
    out.bins.resize(X.n_rows * n_narrow);
    out.wide_bins.resize(X.n_rows * n_wide);
    parallel_for((X.n_rows + kBinningBlockRows - 1) / kBinningBlockRows, settings.n_threads, [&](std::size_t block) {
        const std::size_t begin = block * kBinningBlockRows, n = std::min(kBinningBlockRows, X.n_rows - begin);
        for (std::size_t c = 0; c < width; ++c) {
            const double* values = X.data + begin * X.n_features + out.columns[c].feature;
            const std::size_t at = out.place[c] * X.n_rows + begin;
            if (out.columns[c].is_wide)
                bin_categories(tables[c], values, X.n_features, n, out.wide_bins.data() + at);
            else if (out.columns[c].is_category)
                bin_categories(tables[c], values, X.n_features, n, out.bins.data() + at);
            else
                bin_numeric(out.columns[c], values, X.n_features, n, out.bins.data() + at);
        }
    });
    return out;
}

}  // namespace steelyard
