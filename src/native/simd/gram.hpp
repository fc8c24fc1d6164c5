// Sums of outer products over packed rows: a register tile of `width` rows by 3 panels of columns.
#pragma once

#include "steelyard/loops_gram.hpp"
#include "vectors.hpp"

namespace steelyard::STEELYARD_LEVEL {

constexpr size_t kGroup = 3;

template <class T>
static void pack(const T* X, size_t d, const std::uint32_t* index, const double* origin, const double* scale,
                 PackedBlock block) {
    const size_t whole = d / kDoubles;  // panels that hold features only
    for (size_t k = 0; k < block.rows; ++k) {
        const T* x = X + index[k] * d;
        double* out = block.data + k * kDoubles;
        const double factor = scale ? scale[k] : 1.0;
        for (size_t p = 0; p < whole; ++p, out += block.panel_stride)
            for (size_t c = 0; c < kDoubles; ++c)
                out[c] = (static_cast<double>(x[p * kDoubles + c]) - origin[p * kDoubles + c]) * factor;
        for (size_t c = 0; c < kDoubles; ++c) {
            const size_t column = whole * kDoubles + c;
            out[c] = column < d    ? (static_cast<double>(x[column]) - origin[column]) * factor
                     : column == d ? -factor
                                   : 0.0;
        }
    }
}

// Adds the tile to gram; only entries inside the matrix and not above the diagonal are written.
template <size_t Panels>
static void add_tile(const VecD (&tile)[kDoubles][Panels], size_t row, size_t column, double sign, double* gram,
                     size_t size) {
    constexpr size_t columns = Panels * kDoubles;
    if (row >= column + columns - 1 && row + kDoubles <= size) {  // whole and below the diagonal
        for (size_t r = 0; r < kDoubles; ++r)
            for (size_t v = 0; v < Panels; ++v) {
                double* out = gram + (row + r) * size + column + v * kDoubles;
                store(out, load(out) + sign * tile[r][v]);
            }
        return;
    }
    for (size_t r = 0; r < kDoubles && row + r < size; ++r) {
        double values[columns];
        std::memcpy(values, tile[r], sizeof values);
        for (size_t c = 0; c < columns && column + c <= row + r; ++c)
            gram[(row + r) * size + column + c] += sign * values[c];
    }
}

template <size_t Panels>
static void sum_tiles(PackedBlock block, size_t first_panel, PanelRange rows, double sign, double* gram, size_t size) {
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
        add_tile<Panels>(tile, panel * kDoubles, first_panel * kDoubles, sign, gram, size);
    }
}

static void sum_outer(PackedBlock block, size_t first_panel, PanelRange rows, double sign, double* gram, size_t size) {
    const size_t n_panels = (size + kDoubles - 1) / kDoubles;
    switch (n_panels - first_panel) {
        case 1: return sum_tiles<1>(block, first_panel, rows, sign, gram, size);
        case 2: return sum_tiles<2>(block, first_panel, rows, sign, gram, size);
        default: return sum_tiles<kGroup>(block, first_panel, rows, sign, gram, size);
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

constexpr GramLoops gram_loops{
    kDoubles, kGroup, pack<double>, pack<float>, largest<double, std::int64_t>, largest<float, std::int32_t>,
    sum_outer};

}  // namespace steelyard::STEELYARD_LEVEL
