// The hot loops of the proximal statistics: packing rows into panels and summing their outer products.
#pragma once

#include <cstddef>
#include <cstdint>

namespace steelyard {

// A block of rows in panel form: panel p holds columns p*width .. p*width + width - 1, row after row, so that
// the inner loop reads memory in order. Columns past the end are zero.
struct PackedBlock {
    double* data;
    std::size_t rows;
    std::size_t panel_stride;  // doubles from one panel to the next
};

struct PanelRange {
    std::size_t begin, end;
};

// The steps in which the values of each feature are counted: value = (whole number + origin) / inverse.
struct Steps {
    const double* inverse;  // one over the quantum, a power of two
    const double* origin;   // in quanta, a whole number
    const double* slack;    // by how many quanta a value may be rounded: none, or any number
};

// What one look at some rows tells; arrays of one number a feature are only ever raised.
struct Scan {
    double* largest;       // largest |whole number| of each feature
    double* remainder;     // largest distance of a value from its whole number, in quanta
    std::uint8_t* beyond;  // for each row, whether a value is beyond kTwoDigits or not a number
};

constexpr double kDigit = 0x1p21;      // base of the digits that products are made of
constexpr double kOneDigit = 0x1p20;   // largest magnitude of a digit
constexpr double kTwoDigits = 0x1p41;  // and of a number of two digits

// How whole numbers go into panels: one digit each; or low digits, high digits and their sums in three blocks that
// follow each other; or low digits of all features, then high digits of some.
enum class Digits { one, three, some };

struct GramLoops {
    std::size_t width;  // columns of a panel
    std::size_t group;  // panels of a column group, the unit of work of sum_outer

    // Whole numbers of one row.
    void (*count_f64)(const double* x, std::size_t d, Steps steps, double* out);
    void (*count_f32)(const float* x, std::size_t d, Steps steps, double* out);
    // Rows index[0..rows) of X, or the first ones where there is no index.
    void (*scan_f64)(const double* X, const std::uint32_t* index, std::size_t rows, std::size_t d, Steps steps,
                     Scan scan);
    void (*scan_f32)(const float* X, const std::uint32_t* index, std::size_t rows, std::size_t d, Steps steps,
                     Scan scan);

    // Packs rows index[0..rows) of X (row length d) as digits and a 1 behind the features (a 0 behind high digits).
    // high lists n_high features that have a high digit, for Digits::some; blocks of Digits::three are
    // block_stride apart; buffer holds 3 * (d + 1) numbers, rounded up to whole panels. With the same number of digits
    // for all features false, and the block is unfinished, if one needs more digits or more slack.
    bool (*pack_f64)(const double* X, std::size_t d, const std::uint32_t* index, Steps steps, Digits digits,
                     const std::uint32_t* high, std::size_t n_high, std::size_t block_stride, double* buffer,
                     PackedBlock block);
    bool (*pack_f32)(const float* X, std::size_t d, const std::uint32_t* index, Steps steps, Digits digits,
                     const std::uint32_t* high, std::size_t n_high, std::size_t block_stride, double* buffer,
                     PackedBlock block);

    // Largest |x|; NaN if there is one, else infinity if there is one.
    double (*largest_f64)(const double* values, std::size_t n);
    double (*largest_f32)(const float* values, std::size_t n);

    // gram += sum of outer products, for the columns of one group and those rows of some panels that lie
    // on or below the diagonal. gram is size x size, row-major; above the diagonal nothing is ever touched.
    void (*sum_outer)(PackedBlock block, std::size_t first_panel, PanelRange rows, double* gram, std::size_t size);
};

}  // namespace steelyard
