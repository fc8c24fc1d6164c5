// Hot loops of histogram splits: difference of two histograms, and a test of all splits of a column.
#pragma once

#include <cstddef>
#include <cstdint>

namespace steelyard {

// One column of a histogram, and the leaf to be split. A sum over rows is stored as two integers.
// The first integer is the sum of gradients, the second the sum of hessians with the number of rows in the lowest bits.
struct SplitQuery {
    const std::int64_t* bins;  // sums of the bins of a column, two numbers each
    std::size_t n;             // number of bins, at most kMaxBins
    std::int64_t start[2];     // added to every prefix sum
    std::int64_t total[2];     // sum of the leaf
    int count_bits;            // number of bits of the number of rows
    double hessian_scale;      // factor that converts hessians to the unit of gradients
    std::int64_t min_rows;     // smallest number of rows of each child
    double l2;
    double to_beat;  // gain of the unsplit leaf plus the gain that a split must exceed
};

// The same with sums of one word: from the highest to the lowest bits, gradients, hessians and the number of rows.
struct PackedSplitQuery {
    const std::int64_t* bins;
    std::size_t n;
    std::int64_t start, total;
    int count_bits;      // number of bits of the number of rows
    int gradient_shift;  // number of bits below the gradients
    double hessian_scale;
    std::int64_t min_rows;
    double l2;
    double to_beat;
};

struct SplitLoops {
    // larger[i] -= smaller[i] for n integers.
    void (*subtract)(std::int64_t* larger, const std::int64_t* smaller, std::size_t n);
    // Writes the prefix sums of the bins to `left`.
    // Writes the bins after which a split may exceed `to_beat` to `chosen` (ascending) and returns their number.
    // The test has rounding errors, so callers reduce `to_beat` by a margin and compute the gains of chosen splits.
    std::size_t (*scan)(const SplitQuery& query, std::int64_t* left, std::uint16_t* chosen);
    std::size_t (*scan_packed)(const PackedSplitQuery& query, std::int64_t* left, std::uint16_t* chosen);
};

}  // namespace steelyard
