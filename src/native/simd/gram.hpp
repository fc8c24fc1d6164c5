// Quantization of rows, packing of their digits, and sums of outer products over packed rows.
// Register tiles have `width` rows and 3 panels of columns.
#pragma once

#include "fixed.hpp"
#include "simd/loops_gram.hpp"
#include "vectors.hpp"

namespace steelyard::STEELYARD_LEVEL {

constexpr size_t kGroup = 3;

// values_at() loads a full vector as doubles. first_values() loads n values and sets the other lanes to zero.
STEELYARD_ALWAYS_INLINE static inline VecD values_at(const double* x) { return load(x); }
STEELYARD_ALWAYS_INLINE static inline VecD values_at(const float* x) { return widened(x); }
template <class T>
STEELYARD_ALWAYS_INLINE static inline VecD first_values(const T* x, size_t n) {
    double values[kDoubles] = {};
    for (size_t c = 0; c < n; ++c) values[c] = static_cast<double>(x[c]);
    return load(values);
}
#if defined(__AVX512F__)  // uses one masked load
STEELYARD_ALWAYS_INLINE static inline VecD first_values(const double* x, size_t n) {
    return (VecD)_mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << n) - 1), x);
}
STEELYARD_ALWAYS_INLINE static inline VecD first_values(const float* x, size_t n) {
    return (VecD)_mm512_cvtps_pd(_mm256_maskz_loadu_ps(static_cast<__mmask8>((1u << n) - 1), x));
}
#elif defined(__AVX2__)
STEELYARD_ALWAYS_INLINE static inline VecD first_values(const double* x, size_t n) {
    const __m256i places = _mm256_set_epi64x(3, 2, 1, 0);
    return (VecD)_mm256_maskload_pd(x, _mm256_cmpgt_epi64(_mm256_set1_epi64x(static_cast<long long>(n)), places));
}
#endif

STEELYARD_ALWAYS_INLINE static inline VecD floored(VecD x) {
#if defined(__AVX512F__)
    return (VecD)_mm512_roundscale_pd((__m512d)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#elif defined(__AVX2__)
    return (VecD)_mm256_floor_pd((__m256d)x);
#else
    for (size_t c = 0; c < kDoubles; ++c) x[c] = round_down(x[c]);
    return x;
#endif
}

STEELYARD_ALWAYS_INLINE static inline VecD magnitude(VecD x) { return larger(x, -x); }

// A value rounded to the nearest integer multiple of its step (ties up), and its rounding error.
// Scaling by a power of two is exact, and so are all subtractions, including the subtraction of the origin.
// The rounding therefore does not depend on the origin.
struct Counted {
    VecD steps, whole;
};
STEELYARD_ALWAYS_INLINE static inline Counted counted(VecD x, VecD inverse) {
    const VecD steps = x * inverse, below = floored(steps);
    return {steps, steps - below >= 0.5 ? below + 1.0 : below};
}

template <class T>
static void count(const T* x, size_t d, Steps steps, double* out) {
    size_t j = 0;
    for (; j + kDoubles <= d; j += kDoubles)
        store(out + j, counted(values_at(x + j), load(steps.inverse + j)).whole - load(steps.origin + j));
    if (j == d) return;
    double rest[kDoubles];
    store(rest, counted(first_values(x + j, d - j), first_values(steps.inverse + j, d - j)).whole -
                    first_values(steps.origin + j, d - j));
    std::memcpy(out + j, rest, (d - j) * sizeof(double));
}

// Scans the rows one vector of features at a time while the rows are in the cache.
template <class T>
static void scan(const T* X, const std::uint32_t* index, size_t rows, size_t d, Steps steps, Scan found) {
    constexpr size_t kFew = 64;
    for (size_t i = 0; i < rows; ++i) found.beyond[i] = 0;
    for (size_t first = 0; first < rows; first += kFew) {
        const size_t n = rows - first < kFew ? rows - first : kFew;
        for (size_t j = 0; j < d; j += kDoubles) {
            const size_t width = d - j < kDoubles ? d - j : kDoubles;
            const VecD inverse = first_values(steps.inverse + j, width), origin = first_values(steps.origin + j, width);
            VecD largest = first_values(found.largest + j, width), remainder = first_values(found.remainder + j, width);
            VecD within = broadcast(0.0);
            const auto row = [&](size_t i) { return X + (index ? index[first + i] : first + i) * d + j; };
            const auto look = [&](VecD values) {
                const Counted c = counted(values, inverse);
                const VecD size = magnitude(c.whole - origin), rest = magnitude(c.steps - c.whole);
                largest = larger(size, largest);
                remainder = larger(rest, remainder);
                within = larger(within, size <= kTwoDigits ? broadcast(0.0) : broadcast(1.0));
            };
            if (width == kDoubles)
                for (size_t i = 0; i < n; ++i) look(values_at(row(i)));
            else
                for (size_t i = 0; i < n; ++i) look(first_values(row(i), width));
            double most[kDoubles], left[kDoubles], out[kDoubles];
            store(most, largest);
            store(left, remainder);
            store(out, within);
            bool beyond = false;
            for (size_t c = 0; c < width; ++c) {
                found.largest[j + c] = most[c];
                found.remainder[j + c] = left[c];
                beyond |= out[c] != 0.0;
            }
            if (!beyond) continue;
            for (size_t i = 0; i < n; ++i) {
                store(out, magnitude(counted(first_values(row(i), width), inverse).whole - origin));
                for (size_t c = 0; c < width; ++c) found.beyond[first + i] |= !(out[c] <= kTwoDigits);
            }
        }
    }
}

// Digits are balanced: -2^20 <= low < 2^20, and value = low + 2^21 * high.
STEELYARD_ALWAYS_INLINE static inline VecD high_digit(VecD value) { return floored(value * (1.0 / kDigit) + 0.5); }

template <Digits digits>
STEELYARD_ALWAYS_INLINE static inline void put(VecD value, double* out, size_t block_stride) {
    if constexpr (digits != Digits::three) {
        store(out, value);
    } else {
        const VecD high = high_digit(value), low = value - high * kDigit;
        store(out, low);
        store(out + block_stride, high);
        store(out + 2 * block_stride, low + high);
    }
}

// Returns for each lane whether the integer fits in two digits and the rounding error is within the slack.
template <Digits digits>
STEELYARD_ALWAYS_INLINE static inline auto fits(Counted counted, VecD number, VecD slack) {
    const VecD size = magnitude(number), rest = magnitude(counted.steps - counted.whole);
    if constexpr (digits == Digits::one)
        return (size < kOneDigit) & (rest <= slack);
    else
        return (size <= kTwoDigits) & (rest <= slack);
}

template <class T, Digits digits>
static bool pack_as(const T* X, size_t d, const std::uint32_t* index, Steps steps, size_t block_stride,
                    PackedBlock block) {
    constexpr size_t kFew = 32;  // number of rows between two checks for errors
    // Number of full panels of features, and number of remaining features.
    const size_t whole = d / kDoubles, rest = d % kDoubles;
    const VecD inverse = first_values(steps.inverse + whole * kDoubles, rest);
    const VecD origin = first_values(steps.origin + whole * kDoubles, rest);
    const VecD slack = first_values(steps.slack + whole * kDoubles, rest);
    VecD one = broadcast(0.0);  // 1 in the lane after the last feature, for the column of ones
    one[rest] = 1.0;
    auto good = one == one;
    for (size_t k = 0; k < block.rows; ++k) {
        const T* x = X + index[k] * d;
        double* out = block.data + k * kDoubles;
        for (size_t p = 0; p < whole; ++p, out += block.panel_stride, x += kDoubles) {
            const Counted c = counted(values_at(x), load(steps.inverse + p * kDoubles));
            const VecD number = c.whole - load(steps.origin + p * kDoubles);
            good &= fits<digits>(c, number, load(steps.slack + p * kDoubles));
            put<digits>(number, out, block_stride);
        }
        const Counted c = counted(first_values(x, rest), inverse);
        good &= fits<digits>(c, c.whole - origin, slack);
        put<digits>(c.whole - origin + one, out, block_stride);
        if (k % kFew == kFew - 1 || k + 1 == block.rows)
            for (size_t lane = 0; lane < kDoubles; ++lane)
                if (!good[lane]) return false;
    }
    return true;
}

// Packs low digits and a 1, then the high digits of some features.
template <class T>
static void pack_some(const T* X, size_t d, const std::uint32_t* index, Steps steps, const std::uint32_t* high_of,
                      size_t n_high, double* low, PackedBlock block) {
    const size_t width = (d + 1 + n_high + kDoubles - 1) / kDoubles * kDoubles;
    double* high = low + width;
    for (size_t j = 0; j < 2 * width; ++j) low[j] = 0.0;
    for (size_t k = 0; k < block.rows; ++k) {
        count(X + index[k] * d, d, steps, low);
        for (size_t j = 0; j < d; j += kDoubles) {  // the buffer is padded to full vectors
            const VecD value = load(low + j), digit = high_digit(value);
            store(high + j, digit);
            store(low + j, value - digit * kDigit);
        }
        low[d] = 1.0;
        for (size_t h = 0; h < n_high; ++h) low[d + 1 + h] = high[high_of[h]];
        double* out = block.data + k * kDoubles;
        for (size_t p = 0; p * kDoubles < width; ++p, out += block.panel_stride) store(out, load(low + p * kDoubles));
        for (size_t j = d; j < width; ++j) low[j] = 0.0;
    }
}

template <class T>
static bool pack(const T* X, size_t d, const std::uint32_t* index, Steps steps, Digits digits,
                 const std::uint32_t* high_of, size_t n_high, size_t block_stride, double* buffer, PackedBlock block) {
    switch (digits) {
        case Digits::one: return pack_as<T, Digits::one>(X, d, index, steps, block_stride, block);
        case Digits::three: return pack_as<T, Digits::three>(X, d, index, steps, block_stride, block);
        case Digits::some: pack_some(X, d, index, steps, high_of, n_high, buffer, block);
    }
    return true;
}

// Adds the tile to the Gram matrix. Writes only entries on or below the diagonal.
template <size_t Panels>
static void add_tile(const VecD (&tile)[kDoubles][Panels], size_t row, size_t column, double* gram, size_t size) {
    constexpr size_t columns = Panels * kDoubles;
    // Fast path if the whole tile is inside the matrix and below the diagonal.
    if (row >= column + columns - 1 && row + kDoubles <= size) {
        for (size_t r = 0; r < kDoubles; ++r)
            for (size_t v = 0; v < Panels; ++v) {
                double* out = gram + (row + r) * size + column + v * kDoubles;
                store(out, load(out) + tile[r][v]);
            }
        return;
    }
    for (size_t r = 0; r < kDoubles && row + r < size; ++r) {
        double values[columns];
        std::memcpy(values, tile[r], sizeof values);
        for (size_t c = 0; c < columns && column + c <= row + r; ++c) gram[(row + r) * size + column + c] += values[c];
    }
}

template <size_t Panels>
static void sum_tiles(PackedBlock block, size_t first_panel, PanelRange rows, double* gram, size_t size) {
    const double* right = block.data + first_panel * block.panel_stride;
    for (size_t panel = first_panel > rows.begin ? first_panel : rows.begin; panel < rows.end; ++panel) {
        const double* left = block.data + panel * block.panel_stride;
        // Prefetch the matrix entries to which the sums of this tile will be added.
        for (size_t r = 0; r < kDoubles && panel * kDoubles + r < size; ++r)
            for (size_t v = 0; v < Panels; ++v)
                prefetch_to_write(gram + (panel * kDoubles + r) * size + (first_panel + v) * kDoubles);
        VecD tile[kDoubles][Panels] = {};
        for (size_t k = 0; k < block.rows; ++k) {
            VecD b[Panels];
            for (size_t v = 0; v < Panels; ++v) b[v] = load(right + v * block.panel_stride + k * kDoubles);
            for (size_t r = 0; r < kDoubles; ++r) {
                const VecD a = broadcast(left[k * kDoubles + r]);
                for (size_t v = 0; v < Panels; ++v) tile[r][v] += a * b[v];
            }
        }
        add_tile<Panels>(tile, panel * kDoubles, first_panel * kDoubles, gram, size);
    }
}

static void sum_outer(PackedBlock block, size_t first_panel, PanelRange rows, double* gram, size_t size) {
    const size_t n_panels = (size + kDoubles - 1) / kDoubles;
    switch (n_panels - first_panel) {
        case 1: return sum_tiles<1>(block, first_panel, rows, gram, size);
        case 2: return sum_tiles<2>(block, first_panel, rows, gram, size);
        default: return sum_tiles<kGroup>(block, first_panel, rows, gram, size);
    }
}

// Returns the largest magnitude, or NaN if any value is NaN. Values are compared as integers without the sign bit.
// The order of these integers is finite numbers, infinity, NaN, so a NaN is never missed.
template <class T, class Bits>
static double largest(const T* values, size_t n) {
    typedef Bits VecI STEELYARD_VECTOR(STEELYARD_VECTOR_BYTES);
    constexpr size_t width = STEELYARD_VECTOR_BYTES / sizeof(T), unroll = 4;
    constexpr Bits no_sign = static_cast<Bits>(~(Bits{1} << (8 * sizeof(T) - 1)));
    VecI most[unroll] = {};
    size_t i = 0;
    for (; i + unroll * width <= n; i += unroll * width)
        for (size_t u = 0; u < unroll; ++u) {
            VecI bits;
            std::memcpy(&bits, values + i + u * width, sizeof bits);
            bits &= no_sign;
            most[u] = bits > most[u] ? bits : most[u];
        }
    Bits top = 0;
    for (size_t u = 0; u < unroll; ++u)
        for (size_t k = 0; k < width; ++k) top = most[u][k] > top ? most[u][k] : top;
    for (; i < n; ++i) {
        Bits bits;
        std::memcpy(&bits, values + i, sizeof bits);
        bits &= no_sign;
        top = bits > top ? bits : top;
    }
    T result;
    std::memcpy(&result, &top, sizeof result);
    return static_cast<double>(result);
}

constexpr GramLoops gram_loops{kDoubles,
                               kGroup,
                               count<double>,
                               count<float>,
                               scan<double>,
                               scan<float>,
                               pack<double>,
                               pack<float>,
                               largest<double, std::int64_t>,
                               largest<float, std::int32_t>,
                               sum_outer};

}  // namespace steelyard::STEELYARD_LEVEL
