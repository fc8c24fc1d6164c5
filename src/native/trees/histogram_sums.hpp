// Sums over rows in histograms: gradients, hessians and the number of rows, as integers in one or two words.
// Integer sums are exact in any order, so trees do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "common/compiler.hpp"
#include "common/random.hpp"
#include "simd/loops_split.hpp"

namespace steelyard {

// Adding and subtracting this constant rounds a number to the nearest integer (ties to even).
constexpr double kRounding = 0x1.8p52;

STEELYARD_ALWAYS_INLINE inline std::int64_t round_to_integer(double value) {
    return std::bit_cast<std::int64_t>(value + kRounding) - std::bit_cast<std::int64_t>(kRounding);
}

// Limits of a split that are the same for all bins of a column.
struct SplitLimits {
    std::int64_t min_rows;
    double l2, to_beat;
};

// Sum of two words: the gradients, and the hessians with the number of rows in the lowest bits.
struct alignas(16) WideSum {
    std::int64_t gradient;
    std::int64_t hessian_and_rows;

    WideSum& operator+=(const WideSum& other) {
        gradient += other.gradient;
        hessian_and_rows += other.hessian_and_rows;
        return *this;
    }
    WideSum operator-(const WideSum& other) const {
        return {gradient - other.gradient, hessian_and_rows - other.hessian_and_rows};
    }
};

// Fixed-point format of wide sums. Gradients and hessians are rounded to the nearest integer.
// Sums of n rows need bit_width(n) bits for the number of rows, and as many extra bits for the sum of hessians.
// A hessian is at most a quarter of the largest weight, so with many rows it has fewer bits than a gradient.
class WideFormat {
  public:
    using Sum = WideSum;

    WideFormat(std::size_t n_rows, double max_weight)
        : count_bits_(std::max(kMinCountBits, static_cast<int>(std::bit_width(n_rows)))) {
        int exponent = 0;  // units are powers of two, so that products with them are exact
        std::frexp(max_weight, &exponent);
        const int hessian_bits = std::min(kGradientBits, 65 - 2 * count_bits_);
        gradient_unit_ = std::ldexp(1.0, kGradientBits - exponent);
        hessian_unit_ = std::ldexp(1.0, hessian_bits - exponent);
        hessian_scale_ = std::ldexp(1.0, kGradientBits - hessian_bits);
    }

    // Writes the sums of n single rows. The key of the tree and the number of the first row select random numbers.
    template <std::size_t n>
    STEELYARD_ALWAYS_INLINE void quantize(const double* gradients, const double* hessians, std::uint64_t, std::size_t,
                                          Sum* out) const {
        const double g_unit = gradient_unit_, h_unit = hessian_unit_;
        const int count_bits = count_bits_;
        for (std::size_t i = 0; i < n; ++i)
            out[i] = {round_to_integer(gradients[i] * g_unit),
                      (round_to_integer(hessians[i] * h_unit) << count_bits) + 1};
    }
    std::int64_t rows(const Sum& sum) const { return sum.hessian_and_rows & ((std::int64_t{1} << count_bits_) - 1); }
    double g(const Sum& sum) const { return static_cast<double>(sum.gradient); }
    double h(const Sum& sum) const { return static_cast<double>(sum.hessian_and_rows >> count_bits_) * hessian_scale_; }
    double unit() const { return gradient_unit_; }  // unit of g() and h()

    // Writes the prefix sums of the bins, and the bins after which a split may have enough gain (see SplitLoops).
    std::size_t scan(const SplitLoops& loops, const Sum* bins, std::size_t n, const Sum& start, const Sum& total,
                     const SplitLimits& limits, Sum* prefix_sums, std::uint16_t* chosen) const {
        const SplitQuery query{&bins->gradient,
                               n,
                               {start.gradient, start.hessian_and_rows},
                               {total.gradient, total.hessian_and_rows},
                               count_bits_,
                               hessian_scale_,
                               limits.min_rows,
                               limits.l2,
                               limits.to_beat};
        return loops.scan(query, &prefix_sums->gradient, chosen);
    }

  private:
    static constexpr int kGradientBits = 30;  // number of bits of the gradient of a row with the largest weight
    static constexpr int kMinCountBits = 16;

    int count_bits_;
    double gradient_unit_, hessian_unit_, hessian_scale_;
};

// Sum of one word: from the highest to the lowest bits, gradients, hessians and the number of rows.
struct PackedSum {
    std::int64_t word;

    PackedSum& operator+=(const PackedSum& other) {
        word += other.word;
        return *this;
    }
    PackedSum operator-(const PackedSum& other) const { return {word - other.word}; }
};

// Fixed-point format of packed sums. The word has room for the sums of all rows, so with many rows each row has few
// bits. Gradients and hessians are rounded up or down at random, with probabilities that keep their expectation.
// The rounding error of a sum is then much smaller than the standard deviation of a sum of as many random labels.
class PackedFormat {
  public:
    using Sum = PackedSum;

    // Returns whether the rows have enough bits. The largest weight determines the unit of all rows.
    static bool suits(std::size_t n_rows, double max_weight, double total_weight) {
        return n_rows <= kMaxRows && max_weight * static_cast<double>(n_rows) <= kMaxWeightRatio * total_weight;
    }

    PackedFormat(std::size_t n_rows, double max_weight) : count_bits_(static_cast<int>(std::bit_width(n_rows))) {
        const int row_bits = 63 - 3 * count_bits_;  // each of three sums of n rows needs bit_width(n) more bits
        const int hessian_bits = std::min(row_bits / 2, kMaxRowBits);
        const int gradient_bits = std::min(row_bits - hessian_bits, kMaxRowBits);
        int exponent = 0;  // units are powers of two, so that products with them are exact
        std::frexp(max_weight, &exponent);
        gradient_shift_ = 2 * count_bits_ + hessian_bits;
        gradient_unit_ = std::ldexp(1.0, gradient_bits - exponent);
        hessian_unit_ = std::ldexp(1.0, hessian_bits + 2 - exponent);  // a hessian is at most a quarter of the weight
        hessian_scale_ = std::ldexp(1.0, gradient_bits - hessian_bits - 2);
    }

    template <std::size_t n>
    STEELYARD_ALWAYS_INLINE void quantize(const double* gradients, const double* hessians, std::uint64_t key,
                                          std::size_t first_row, Sum* out) const {
        constexpr std::uint64_t golden = 0x9e3779b97f4a7c15u;
        const double g_unit = gradient_unit_, h_unit = hessian_unit_;
        const int count_bits = count_bits_, gradient_shift = gradient_shift_;
        for (std::size_t i = 0; i < n; ++i) {
            const std::uint64_t bits = mix_bits(key + golden * (first_row + i + 1));
            // Opposite gradients are rounded to opposite numbers, so that swapped classes give mirrored trees.
            const double gradient = gradients[i] * g_unit;
            const std::int64_t g = round_to_integer(gradient + with_sign_of(gradient, offset(bits >> 32)));
            const std::int64_t h = round_to_integer(hessians[i] * h_unit + offset(bits & 0xffffffffu));
            out[i].word = (g << gradient_shift) + (h << count_bits) + 1;
        }
    }
    std::int64_t rows(const Sum& sum) const { return sum.word & ((std::int64_t{1} << count_bits_) - 1); }
    double g(const Sum& sum) const { return static_cast<double>(sum.word >> gradient_shift_); }
    double h(const Sum& sum) const {
        const std::int64_t mask = (std::int64_t{1} << gradient_shift_) - 1;
        return static_cast<double>((sum.word & mask) >> count_bits_) * hessian_scale_;
    }
    double unit() const { return gradient_unit_; }

    std::size_t scan(const SplitLoops& loops, const Sum* bins, std::size_t n, const Sum& start, const Sum& total,
                     const SplitLimits& limits, Sum* prefix_sums, std::uint16_t* chosen) const {
        const PackedSplitQuery query{
            &bins->word,     n,         start.word,    total.word, count_bits_, gradient_shift_, hessian_scale_,
            limits.min_rows, limits.l2, limits.to_beat};
        return loops.scan_packed(query, &prefix_sums->word, chosen);
    }

  private:
    static constexpr std::size_t kMaxRows = (std::size_t{1} << 17) - 1;
    static constexpr double kMaxWeightRatio = 4.0;  // maximum ratio of the largest weight and the mean weight
    static constexpr int kMaxRowBits = 20;

    // Returns a number between -1/2 and 1/2 for 32 random bits.
    STEELYARD_ALWAYS_INLINE static double offset(std::uint64_t bits) {
        return static_cast<double>(static_cast<std::int64_t>(bits)) * 0x1p-32 - (0.5 - 0x1p-33);
    }

    // Returns `value`, negated if `number` is negative.
    STEELYARD_ALWAYS_INLINE static double with_sign_of(double number, double value) {
        constexpr std::uint64_t sign = std::uint64_t{1} << 63;
        return std::bit_cast<double>(std::bit_cast<std::uint64_t>(value) ^
                                     (std::bit_cast<std::uint64_t>(number) & sign));
    }

    int count_bits_, gradient_shift_ = 0;
    double gradient_unit_, hessian_unit_, hessian_scale_;
};

}  // namespace steelyard
