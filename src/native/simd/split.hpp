// Tests of the splits of a histogram column, vectorized over bins.
#pragma once

#include <cstdint>

#include "simd/loops_split.hpp"
#include "vectors.hpp"

namespace steelyard::STEELYARD_LEVEL {

constexpr size_t kMaxSplits = 256;

static void split_subtract(std::int64_t* STEELYARD_RESTRICT larger, const std::int64_t* STEELYARD_RESTRICT smaller,
                           size_t n) {
    for (size_t i = 0; i < n; ++i) larger[i] -= smaller[i];
}

// Writes the bins begin..end that exceed the gain, and returns their number.
static size_t split_list(const std::int64_t* exceeds, size_t begin, size_t end,
                         std::uint16_t* STEELYARD_RESTRICT chosen) {
    size_t n = 0;
    for (size_t b = begin; b < end; ++b) {
        chosen[n] = static_cast<std::uint16_t>(b);
        n += static_cast<size_t>(exceeds[b]);
    }
    return n;
}

static size_t split_scan(const SplitQuery& query, std::int64_t* STEELYARD_RESTRICT left,
                         std::uint16_t* STEELYARD_RESTRICT chosen) {
    const SplitQuery q = query;  // local copy that the output cannot alias
    std::int64_t gradient = q.start[0], hessian_and_rows = q.start[1];
    for (size_t b = 0; b < q.n; ++b) {
        left[2 * b] = gradient += q.bins[2 * b];
        left[2 * b + 1] = hessian_and_rows += q.bins[2 * b + 1];
    }
    const std::int64_t row_mask = (std::int64_t{1} << q.count_bits) - 1, n_rows = q.total[1] & row_mask;
    const auto rows_upto = [&](size_t b) { return left[2 * b + 1] & row_mask; };
    size_t begin = 0, end = q.n;
    while (begin < end && rows_upto(begin) < q.min_rows) ++begin;
    while (begin < end && n_rows - rows_upto(end - 1) < q.min_rows) --end;
    const double g = static_cast<double>(q.total[0]), scale = q.hessian_scale, l2 = q.l2, to_beat = q.to_beat;
    const double h = static_cast<double>(q.total[1] >> q.count_bits) * scale;
    const int count_bits = q.count_bits;
    std::int64_t exceeds[kMaxSplits], any = 0;
    for (size_t b = begin; b < end; ++b) {
        const double gl = static_cast<double>(left[2 * b]), gr = g - gl;
        const double hl = static_cast<double>(left[2 * b + 1] >> count_bits) * scale;
        const double low = hl + l2, high = (h - hl) + l2;
        exceeds[b] = gl * gl * high + gr * gr * low > to_beat * (low * high) ? 1 : 0;
        any |= exceeds[b];
    }
    return any == 0 ? 0 : split_list(exceeds, begin, end, chosen);
}

static size_t split_scan_packed(const PackedSplitQuery& query, std::int64_t* STEELYARD_RESTRICT left,
                                std::uint16_t* STEELYARD_RESTRICT chosen) {
    const PackedSplitQuery q = query;  // local copy that the output cannot alias
    std::int64_t sum = q.start;
    for (size_t b = 0; b < q.n; ++b) left[b] = sum += q.bins[b];
    const std::int64_t row_mask = (std::int64_t{1} << q.count_bits) - 1;
    const std::int64_t low_mask = (std::int64_t{1} << q.gradient_shift) - 1;
    const int count_bits = q.count_bits, gradient_shift = q.gradient_shift;
    const std::int64_t min_rows = q.min_rows, max_rows = (q.total & row_mask) - q.min_rows;
    const double g = static_cast<double>(q.total >> gradient_shift), scale = q.hessian_scale, l2 = q.l2,
                 to_beat = q.to_beat;
    const double h = static_cast<double>((q.total & low_mask) >> count_bits) * scale;
    std::int64_t exceeds[kMaxSplits], any = 0;
    for (size_t b = 0; b < q.n; ++b) {
        const std::int64_t rows = left[b] & row_mask;
        const double gl = static_cast<double>(left[b] >> gradient_shift), gr = g - gl;
        const double hl = static_cast<double>((left[b] & low_mask) >> count_bits) * scale;
        const double low = hl + l2, high = (h - hl) + l2;
        const std::int64_t is_better = gl * gl * high + gr * gr * low > to_beat * (low * high) ? 1 : 0;
        exceeds[b] = is_better & (rows >= min_rows ? 1 : 0) & (rows <= max_rows ? 1 : 0);
        any |= exceeds[b];
    }
    return any == 0 ? 0 : split_list(exceeds, 0, q.n, chosen);
}

constexpr SplitLoops split_loops{split_subtract, split_scan, split_scan_packed};

}  // namespace steelyard::STEELYARD_LEVEL
