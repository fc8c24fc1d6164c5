// Values counted in quanta, their digits packed, and sums of outer products over packed rows: a register tile of
// `width` rows by 3 panels of columns.
#pragma once

#include "steelyard/loops_gram.hpp"
#include "vectors.hpp"

namespace steelyard::STEELYARD_LEVEL {

constexpr size_t kGroup = 3;

// The whole number of quanta nearest to a value, halves upwards, relative to the origin. The product is exact, being
// one with a power of two, and so is every difference: what is learned does not depend on the origin.
[[gnu::always_inline]] static inline double counted(double x, double inverse, double origin, double* remainder) {
    const double quanta = x * inverse, below = __builtin_floor(quanta), part = quanta - below;
    const double whole = part >= 0.5 ? below + 1.0 : below;
    *remainder = __builtin_fabs(quanta - whole);
    return whole - origin;
}

template <class T>
static void count(const T* x, size_t d, Steps steps, double* out) {
    double remainder;
    for (size_t j = 0; j < d; ++j)
        out[j] = counted(static_cast<double>(x[j]), steps.inverse[j], steps.origin[j], &remainder);
}

template <class T>
static void scan(const T* X, size_t rows, size_t d, Steps steps, Scan found) {
    for (size_t i = 0; i < rows; ++i, X += d) {
        double beyond = 0.0;
        for (size_t j = 0; j < d; ++j) {
            double remainder;
            const double size =
                __builtin_fabs(counted(static_cast<double>(X[j]), steps.inverse[j], steps.origin[j], &remainder));
            found.largest[j] = size > found.largest[j] ? size : found.largest[j];
            found.remainder[j] = remainder > found.remainder[j] ? remainder : found.remainder[j];
            beyond += size <= kTwoDigits ? 0.0 : 1.0;
        }
        found.beyond[i] = beyond != 0.0;
    }
}

[[gnu::always_inline]] static inline void to_panels(const double* row, size_t n, double* out, size_t stride) {
    for (size_t p = 0; p * kDoubles < n; ++p, out += stride) std::memcpy(out, row + p * kDoubles, sizeof(VecD));
}

// Digits are balanced: -2^20 <= low < 2^20, and value = low + 2^21 * high.
template <class T>
static void pack(const T* X, size_t d, const std::uint32_t* index, Steps steps, Digits digits,
                 const std::uint32_t* high_of, size_t n_high, size_t block_stride, double* buffer, PackedBlock block) {
    const size_t room = (d + 1 + n_high + kDoubles - 1) / kDoubles * kDoubles;
    double *low = buffer, *high = buffer + room, *sum = buffer + 2 * room;
    for (size_t j = 0; j < 3 * room; ++j) buffer[j] = 0.0;
    low[d] = sum[d] = 1.0;
    for (size_t k = 0; k < block.rows; ++k) {
        count(X + index[k] * d, d, steps, low);
        double* out = block.data + k * kDoubles;
        if (digits != Digits::one)
            for (size_t j = 0; j < d; ++j) {
                high[j] = __builtin_floor(low[j] * (1.0 / kDigit) + 0.5);
                low[j] -= high[j] * kDigit;
                sum[j] = low[j] + high[j];
            }
        if (digits == Digits::some)
            for (size_t h = 0; h < n_high; ++h) low[d + 1 + h] = high[high_of[h]];
        to_panels(low, room, out, block.panel_stride);
        if (digits == Digits::three) {
            to_panels(high, room, out + block_stride, block.panel_stride);
            to_panels(sum, room, out + 2 * block_stride, block.panel_stride);
        }
    }
}

// Adds the tile to gram; only entries inside the matrix and not above the diagonal are written.
template <size_t Panels>
static void add_tile(const VecD (&tile)[kDoubles][Panels], size_t row, size_t column, double* gram, size_t size) {
    constexpr size_t columns = Panels * kDoubles;
    if (row >= column + columns - 1 && row + kDoubles <= size) {  // whole and below the diagonal
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
        // The matrix is needed only after the sums; asked for now, it has arrived by then.
        for (size_t r = 0; r < kDoubles && panel * kDoubles + r < size; ++r)
            for (size_t v = 0; v < Panels; ++v)
                __builtin_prefetch(gram + (panel * kDoubles + r) * size + (first_panel + v) * kDoubles, 1);
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

// Magnitudes are compared as integers: without their sign, the bits of numbers, infinities and NaN rise in this
// order, so a NaN cannot slip through a comparison.
template <class T, class Bits>
static double largest(const T* values, size_t n) {
    typedef Bits VecI __attribute__((vector_size(STEELYARD_VECTOR_BYTES)));
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
