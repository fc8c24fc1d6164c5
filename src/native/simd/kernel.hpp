// Kernel values of row-major rows with packed rows, in register tiles of a few rows by two vectors.
// The kernel function is applied to a tile while it is in registers, also for single rows and narrow tiles: a second
// pass over the sums made KOIL a tenth slower and IncrementalSVC 3 to 7 %.
//
// Distances are summed from differences, not from products.
// Distances are therefore exactly zero for equal rows, do not depend on a common offset, and need no norms.
// Compared with products, differences cost one more subtraction per feature.
#pragma once

#include "functions.hpp"
#include "simd/loops_kernel.hpp"

namespace steelyard::STEELYARD_LEVEL {

constexpr size_t kTileVectors = 2;
constexpr size_t kTileRows = STEELYARD_VECTOR_BYTES == 64 ? 8 : 4;  // sums use 16 of 32 registers, or 8 of 16 registers

template <class T>
struct KernelNumbers {
    T gamma, coef0;
    int degree;
};

template <class T>
static KernelNumbers<T> numbers(const KernelSpec& spec) {
    // A gamma beyond the range of float would become infinite, and infinity times 0 is NaN.
    constexpr double largest = sizeof(T) == 4 ? static_cast<double>(__FLT_MAX__) : __DBL_MAX__;
    const double gamma = spec.gamma > largest ? largest : spec.gamma < -largest ? -largest : spec.gamma;
    return {static_cast<T>(gamma), static_cast<T>(spec.coef0), spec.degree};
}

// Kernels consist of a sum over the features and of a function of this sum.
template <class T>
struct Linear {
    STEELYARD_ALWAYS_INLINE static Vec<T> add(Vec<T> sum, Vec<T> x, Vec<T> z) { return sum + x * z; }
    STEELYARD_ALWAYS_INLINE static Vec<T> finish(Vec<T> product, KernelNumbers<T>) { return product; }
};

template <class T>
struct Polynomial : Linear<T> {
    STEELYARD_ALWAYS_INLINE static Vec<T> finish(Vec<T> product, KernelNumbers<T> p) {
        Vec<T> square = product * p.gamma + p.coef0, power = broadcast(T(1));
        for (int bits = p.degree; bits; bits >>= 1, square *= square)
            if (bits & 1) power *= square;
        return power;
    }
};

template <class T>
struct Sigmoid : Linear<T> {
    STEELYARD_ALWAYS_INLINE static Vec<T> finish(Vec<T> product, KernelNumbers<T> p) {
        return tanh<T>(product * p.gamma + p.coef0);
    }
};

template <class T>
struct SquaredDistance {
    STEELYARD_ALWAYS_INLINE static Vec<T> add(Vec<T> sum, Vec<T> x, Vec<T> z) {
        const Vec<T> difference = x - z;
        return sum + difference * difference;
    }
    STEELYARD_ALWAYS_INLINE static Vec<T> finish(Vec<T> squared_distance, KernelNumbers<T>) { return squared_distance; }
};

template <class T>
struct Rbf : SquaredDistance<T> {
    STEELYARD_ALWAYS_INLINE static Vec<T> finish(Vec<T> squared_distance, KernelNumbers<T> p) {
        return exp_nonpositive<T>(squared_distance * -p.gamma);
    }
};

template <class T>
struct Cityblock {
    STEELYARD_ALWAYS_INLINE static Vec<T> add(Vec<T> sum, Vec<T> x, Vec<T> z) { return sum + absolute<T>(x - z); }
    STEELYARD_ALWAYS_INLINE static Vec<T> finish(Vec<T> distance, KernelNumbers<T>) { return distance; }
};

template <class T>
struct Laplacian : Cityblock<T> {
    STEELYARD_ALWAYS_INLINE static Vec<T> finish(Vec<T> distance, KernelNumbers<T> p) {
        return exp_nonpositive<T>(distance * -p.gamma);
    }
};

template <class T>
STEELYARD_ALWAYS_INLINE static inline void store_some(T* out, Vec<T> values, size_t wanted) {
    if (wanted >= Lane<T>::count) return store(out, values);
#if defined(__AVX512F__)
    const unsigned lanes = (1u << wanted) - 1;  // mask with one bit per lane
    if constexpr (sizeof(T) == sizeof(double))
        _mm512_mask_storeu_pd(out, static_cast<__mmask8>(lanes), (__m512d)values);
    else
        _mm512_mask_storeu_ps(out, static_cast<__mmask16>(lanes), (__m512)values);
#else
    for (size_t j = 0; j < wanted; ++j) out[j] = values[j];
#endif
}

template <class Kernel, class T, class Sum, size_t Rows, size_t Vectors>
static void tile(KernelNumbers<Sum> p, const T* X, size_t d, const Sum* z, Sum* out, size_t ld, size_t columns) {
    constexpr size_t lanes = Lane<Sum>::count, width = kPanelWidth<Sum>;
    Vec<Sum> sums[Rows][Vectors] = {};
    for (size_t k = 0; k < d; ++k, z += width) {
        Vec<Sum> zk[Vectors];
        for (size_t v = 0; v < Vectors; ++v) zk[v] = load(z + v * lanes / width * width * d + v * lanes % width);
        for (size_t r = 0; r < Rows; ++r) {
            const Vec<Sum> x = broadcast(static_cast<Sum>(X[r * d + k]));
            for (size_t v = 0; v < Vectors; ++v) sums[r][v] = Kernel::add(sums[r][v], x, zk[v]);
        }
    }
    for (size_t r = 0; r < Rows; ++r)
        for (size_t v = 0; v < Vectors && v * lanes < columns; ++v)
            store_some<Sum>(out + r * ld + v * lanes, Kernel::finish(sums[r][v], p), columns - v * lanes);
}

template <class Kernel, class T, class Sum>
static void row_of(KernelNumbers<Sum> p, const T* x, size_t d, const Sum* panels, size_t n_z, Sum* row) {
    constexpr size_t step = kTileVectors * Lane<Sum>::count, width = kPanelWidth<Sum>;
    for (size_t j = 0; j < n_z;) {
        const Sum* z = panels + j / width * width * d + j % width;
        // The tile of a single row is wider, to hide the latency of the additions.
        if (n_z - j > step) {
            tile<Kernel, T, Sum, 1, 2 * kTileVectors>(p, x, d, z, row + j, n_z, n_z - j);
            j += 2 * step;
        } else {
            tile<Kernel, T, Sum, 1, kTileVectors>(p, x, d, z, row + j, n_z, n_z - j);
            j += step;
        }
    }
}

template <class Kernel, class T, class Sum>
static void block_of(const KernelSpec& spec, const T* X, size_t n_x, size_t d, const Sum* panels, size_t n_z, Sum* out,
                     size_t ld) {
    constexpr size_t step = kTileVectors * Lane<Sum>::count, width = kPanelWidth<Sum>;
    const KernelNumbers<Sum> p = numbers<Sum>(spec);
    const size_t tiled_rows = n_x / kTileRows * kTileRows;
    if (tiled_rows > 0)
        for (size_t j = 0; j < n_z; j += step) {
            const Sum* z = panels + j / width * width * d + j % width;
            const bool is_half = n_z - j <= step / 2;
            for (size_t i = 0; i < tiled_rows; i += kTileRows) {
                Sum* part = out + i * ld + j;
                if (is_half)
                    tile<Kernel, T, Sum, kTileRows, kTileVectors / 2>(p, X + i * d, d, z, part, ld, n_z - j);
                else
                    tile<Kernel, T, Sum, kTileRows, kTileVectors>(p, X + i * d, d, z, part, ld, n_z - j);
            }
        }
    for (size_t i = tiled_rows; i < n_x; ++i) row_of<Kernel>(p, X + i * d, d, panels, n_z, out + i * ld);
}

template <class T, class Sum>
static void look_up(const KernelTable& table, const T* X, size_t n_x, size_t d, const Sum* panels, size_t n_z, Sum* out,
                    size_t ld) {
    constexpr size_t width = kPanelWidth<Sum>;
    for (size_t i = 0; i < n_x; ++i) {
        const double* row = table.values + static_cast<size_t>(X[i * d]) * table.n;
        for (size_t j = 0; j < n_z; ++j)
            out[i * ld + j] = static_cast<Sum>(row[static_cast<size_t>(panels[j / width * width * d + j % width])]);
    }
}

template <class T, class Sum>
static void kernel_block(const KernelSpec& spec, const T* X, size_t n_x, size_t d, const Sum* panels, size_t n_z,
                         Sum* out, size_t ld) {
    switch (spec.kind) {
        case KernelKind::linear: return block_of<Linear<Sum>>(spec, X, n_x, d, panels, n_z, out, ld);
        case KernelKind::polynomial: return block_of<Polynomial<Sum>>(spec, X, n_x, d, panels, n_z, out, ld);
        case KernelKind::rbf: return block_of<Rbf<Sum>>(spec, X, n_x, d, panels, n_z, out, ld);
        case KernelKind::laplacian: return block_of<Laplacian<Sum>>(spec, X, n_x, d, panels, n_z, out, ld);
        case KernelKind::sigmoid: return block_of<Sigmoid<Sum>>(spec, X, n_x, d, panels, n_z, out, ld);
        case KernelKind::squared_distance: return block_of<SquaredDistance<Sum>>(spec, X, n_x, d, panels, n_z, out, ld);
        case KernelKind::cityblock: return block_of<Cityblock<Sum>>(spec, X, n_x, d, panels, n_z, out, ld);
        case KernelKind::lookup: return look_up<T, Sum>(*spec.table, X, n_x, d, panels, n_z, out, ld);
    }
}

// Replaces n distances or inner products by kernel values.
template <class Kernel, class T>
static void finish_sums(const KernelSpec& spec, T* sums, size_t n) {
    constexpr size_t lanes = Lane<T>::count;
    const KernelNumbers<T> p = numbers<T>(spec);
    size_t j = 0;
    for (; j + lanes <= n; j += lanes) store(sums + j, Kernel::finish(load(sums + j), p));
    Vec<T> rest = {};
    for (size_t r = 0; j + r < n; ++r) rest[r] = sums[j + r];
    store_some<T>(sums + j, Kernel::finish(rest, p), n - j);
}

template <class T>
static void from_sums(const KernelSpec& spec, T* sums, size_t n) {
    switch (spec.kind) {
        case KernelKind::polynomial: return finish_sums<Polynomial<T>>(spec, sums, n);
        case KernelKind::sigmoid: return finish_sums<Sigmoid<T>>(spec, sums, n);
        case KernelKind::rbf: return finish_sums<Rbf<T>>(spec, sums, n);
        case KernelKind::laplacian: return finish_sums<Laplacian<T>>(spec, sums, n);
        default: return;
    }
}

// Returns sum + a * b, rounded exactly as in the tile loops.
// If the SIMD level has fused multiply-add, it is called explicitly: the compiler might not fuse a scalar sum.
STEELYARD_ALWAYS_INLINE static inline double add_product(double sum, double a, double b) {
#ifdef __FP_FAST_FMA
    return fused(a, b, sum);
#else
    return sum + a * b;
#endif
}
STEELYARD_ALWAYS_INLINE static inline float add_product(float sum, float a, float b) {
#ifdef __FP_FAST_FMAF
    return fused(a, b, sum);
#else
    return sum + a * b;
#endif
}

template <class T>
static void finish_products(const KernelSpec& spec, T x_norm, const T* z_norms, T* products, size_t n) {
    if (spec.kind == KernelKind::laplacian) return;
    if (spec.kind == KernelKind::rbf)
        for (size_t j = 0; j < n; ++j) {
            const T squared = (x_norm + z_norms[j]) - T(2) * products[j];
            products[j] = squared < T(0) ? T(0) : squared;  // rounding errors can make a squared distance negative
        }
    from_sums<T>(spec, products, n);
}

template <class T>
static void self_products(const T* X, size_t n, size_t d, T* out) {
    for (size_t i = 0; i < n; ++i, X += d) {
        T sum = 0;
        for (size_t k = 0; k < d; ++k) sum = add_product(sum, X[k], X[k]);
        out[i] = sum;
    }
}

template <class T>
static T dot(const T* a, const T* b, size_t n) {
    constexpr size_t lanes = Lane<T>::count, chains = 4;
    Vec<T> sums[chains] = {};
    size_t j = 0;
    for (; j + chains * lanes <= n; j += chains * lanes)
        for (size_t c = 0; c < chains; ++c) sums[c] += load(a + j + c * lanes) * load(b + j + c * lanes);
    for (; j + lanes <= n; j += lanes) sums[0] += load(a + j) * load(b + j);
    const Vec<T> lane_sums = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    T total = 0;
    for (size_t lane = 0; lane < lanes; ++lane) total += lane_sums[lane];
    for (; j < n; ++j) total += a[j] * b[j];
    return total;
}

constexpr KernelLoops kernel_loops{
    {kernel_block<double, double>},
    {kernel_block<float, float>},
    {kernel_block<float, double>},
    {finish_products<double>, from_sums<double>, self_products<double>, dot<double>},
    {finish_products<float>, from_sums<float>, self_products<float>, dot<float>},
};

}  // namespace steelyard::STEELYARD_LEVEL
