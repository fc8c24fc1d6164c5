// Hot loops of the sufficient statistics: quantizing rows, packing them into panels, and summing outer products.
#pragma once

#include <cstddef>
#include <cstdint>

namespace steelyard {

// A block of rows stored as panels: panel p contains the columns p*width .. p*width + width - 1, row by row.
// With this layout the inner loop reads memory in order. Padding columns are zero.
struct PackedBlock {
    double* data;
    std::size_t rows;
    std::size_t panel_stride;  // number of doubles from one panel to the next
};

struct PanelRange {
    std::size_t begin, end;
};

// Quantizer of each feature, where value = (integer + origin) / inverse.
struct Steps {
    const double* inverse;  // 1 / step, a power of two
    const double* origin;   // origin in steps, an integer
    const double* slack;    // maximum accepted rounding error in steps, either zero or one
};

// Result of a scan of rows. Arrays with one entry per feature contain running maxima.
struct Scan {
    double* largest;       // largest |integer| of each feature
    double* remainder;     // largest rounding error of each feature, in steps
    std::uint8_t* beyond;  // for each row, whether a value is NaN or needs more than two digits
};

constexpr double kDigit = 0x1p21;      // base of the digits
constexpr double kOneDigit = 0x1p20;   // largest magnitude of a digit
constexpr double kTwoDigits = 0x1p41;  // largest magnitude of a number of two digits

// Layout of integers in panels. `one` means one digit per integer.
// `three` means low digits, high digits and their sums (Karatsuba) in three consecutive blocks.
// `some` means low digits of all features, then high digits of some features.
enum class Digits { one, three, some };

struct GramLoops {
    std::size_t width;  // number of columns of a panel
    std::size_t group;  // number of panels of a column group, which is the unit of work of sum_outer

    // Quantizes one row.
    void (*count_f64)(const double* x, std::size_t d, Steps steps, double* out);
    void (*count_f32)(const float* x, std::size_t d, Steps steps, double* out);
    // Scans the rows index[0..rows) of X, or the first rows if `index` is null.
    void (*scan_f64)(const double* X, const std::uint32_t* index, std::size_t rows, std::size_t d, Steps steps,
                     Scan scan);
    void (*scan_f32)(const float* X, const std::uint32_t* index, std::size_t rows, std::size_t d, Steps steps,
                     Scan scan);

    // Packs the rows index[0..rows) of X (row length d) as digits, followed by a column of ones.
    // The column that follows high digits is zero.
    // For Digits::some, `high` lists the n_high features with a high digit.
    // Blocks of Digits::three are block_stride apart. `buffer` has 3 * (d + 1) numbers, rounded up to full panels.
    // Returns false, with an incomplete block, if a value needs more digits or slack. Digits::some is not checked.
    bool (*pack_f64)(const double* X, std::size_t d, const std::uint32_t* index, Steps steps, Digits digits,
                     const std::uint32_t* high, std::size_t n_high, std::size_t block_stride, double* buffer,
                     PackedBlock block);
    bool (*pack_f32)(const float* X, std::size_t d, const std::uint32_t* index, Steps steps, Digits digits,
                     const std::uint32_t* high, std::size_t n_high, std::size_t block_stride, double* buffer,
                     PackedBlock block);

    // Returns the largest |x|, or NaN if any value is NaN.
    double (*largest_f64)(const double* values, std::size_t n);
    double (*largest_f32)(const float* values, std::size_t n);

    // Adds outer products to gram, for the columns of one group and the rows of some panels on or below the diagonal.
    // gram is size x size, row-major, and entries above the diagonal are not accessed.
    void (*sum_outer)(PackedBlock block, std::size_t first_panel, PanelRange rows, double* gram, std::size_t size);
};

}  // namespace steelyard
