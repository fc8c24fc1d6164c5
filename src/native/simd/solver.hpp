// Loops over kernel rows and factor columns: everything is streamed once, in order.
#pragma once

#if defined(__AVX2__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC warns of its own header
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

#include "steelyard/loops_solver.hpp"
#include "vectors.hpp"

namespace steelyard::STEELYARD_LEVEL {

typedef std::int64_t MaskD __attribute__((vector_size(STEELYARD_VECTOR_BYTES)));

static void axpy(double a, const double* x, double* y, size_t n) {
    size_t i = 0;
    for (; i + kDoubles <= n; i += kDoubles) store(y + i, load(y + i) + a * load(x + i));
    for (; i < n; ++i) y[i] += a * x[i];
}

static void axpy4(const double* a, const double* const* x, double* y, size_t n) {
    const double *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];
    size_t i = 0;
    for (; i + kDoubles <= n; i += kDoubles) {
        const VecD first = a[0] * load(x0 + i) + a[1] * load(x1 + i);
        const VecD second = a[2] * load(x2 + i) + a[3] * load(x3 + i);
        store(y + i, load(y + i) + (first + second));
    }
    for (; i < n; ++i) y[i] += (a[0] * x0[i] + a[1] * x1[i]) + (a[2] * x2[i] + a[3] * x3[i]);
}

typedef float HalfVecF __attribute__((vector_size(STEELYARD_VECTOR_BYTES / 2)));

[[gnu::always_inline]] static inline VecD widened(const float* p) {
    HalfVecF half;
    std::memcpy(&half, p, sizeof half);
    return __builtin_convertvector(half, VecD);
}

static void axpy_narrow(double a, const float* x, double* y, size_t n) {
    size_t i = 0;
    for (; i + kDoubles <= n; i += kDoubles) store(y + i, load(y + i) + a * widened(x + i));
    for (; i < n; ++i) y[i] += a * static_cast<double>(x[i]);
}

// y[0 .. kFloats) += x, which the compiler by itself turns into a dozen shuffles.
[[gnu::always_inline]] static inline void add_widened(VecF x, double* y) {
#if defined(__AVX512DQ__)
    const VecD first = (VecD)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)x));
    const VecD second = (VecD)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)x, 1));
#elif defined(__AVX2__)
    const VecD first = (VecD)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)x));
    const VecD second = (VecD)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)x, 1));
#else
    float values[kFloats];
    store(values, x);
    const VecD first = widened(values), second = widened(values + kDoubles);
#endif
    store(y, load(y) + first);
    store(y + kDoubles, load(y + kDoubles) + second);
}

static void add_narrow8(const float* a, const float* const* x, double* y, size_t n) {
    const float *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3], *x4 = x[4], *x5 = x[5], *x6 = x[6], *x7 = x[7];
    VecF w[8];
    for (size_t k = 0; k < 8; ++k) w[k] = broadcast(a[k]);
    size_t i = 0;
    for (; i + kFloats <= n; i += kFloats) {
        const VecF first = (w[0] * load(x0 + i) + w[1] * load(x1 + i)) + (w[2] * load(x2 + i) + w[3] * load(x3 + i));
        const VecF second = (w[4] * load(x4 + i) + w[5] * load(x5 + i)) + (w[6] * load(x6 + i) + w[7] * load(x7 + i));
        add_widened(first + second, y + i);
    }
    for (; i < n; ++i) {
        const float first = (a[0] * x0[i] + a[1] * x1[i]) + (a[2] * x2[i] + a[3] * x3[i]);
        const float second = (a[4] * x4[i] + a[5] * x5[i]) + (a[6] * x6[i] + a[7] * x7[i]);
        y[i] += static_cast<double>(first + second);
    }
}

// The sum of the lanes of v[k], for each k, in lane k: neighbours are folded into one until one is left.
template <size_t Count>
[[gnu::always_inline]] static inline VecD lane_sums(VecD* v) {
    if constexpr (Count == 1) return v[0];
    constexpr size_t run = kDoubles / Count;  // lanes in a row that belong to different sums
    MaskD first, second;
    for (size_t lane = 0; lane < kDoubles; ++lane) {
        const size_t vector = lane / run % 2, from = lane / (2 * run) * (2 * run) + lane % run;
        first[lane] = static_cast<std::int64_t>(vector * kDoubles + from);
        second[lane] = static_cast<std::int64_t>(vector * kDoubles + from + run);
    }
    for (size_t k = 0; k < Count / 2; ++k)
        v[k] = __builtin_shuffle(v[2 * k], v[2 * k + 1], first) + __builtin_shuffle(v[2 * k], v[2 * k + 1], second);
    return lane_sums<Count / 2 ? Count / 2 : 1>(v);
}

static void solve_forward(TriangularFactor L, double* x) {
    constexpr size_t width = kDoubles;
    const size_t n = L.size;
    size_t j = 0;
    for (; j + width <= n; j += width) {  // several columns for one pass over what is left of x
        const double* column[width];
        double minus[width];
        for (size_t k = 0; k < width; ++k) {
            column[k] = L.columns + (j + k) * L.stride;
            const double xk = x[j + k] * L.inverse[j + k];
            for (size_t i = k + 1; i < width; ++i) x[j + i] -= xk * column[k][j + i];
            x[j + k] = xk;
            minus[k] = -xk;
        }
        size_t i = j + width;
        for (; i + width <= n; i += width) {
            VecD sum = load(x + i), other = {};
            for (size_t k = 0; k < width; k += 2) {
                sum += minus[k] * load(column[k] + i);
                other += minus[k + 1] * load(column[k + 1] + i);
            }
            store(x + i, sum + other);
        }
        for (; i < n; ++i)
            for (size_t k = 0; k < width; ++k) x[i] += minus[k] * column[k][i];
    }
    for (; j < n; ++j) {
        x[j] *= L.inverse[j];
        for (size_t i = j + 1; i < n; ++i) x[i] -= x[j] * L.columns[j * L.stride + i];
    }
}

static void solve_backward(TriangularFactor L, double* x) {
    constexpr size_t width = kDoubles;
    const size_t n = L.size;
    size_t j = n;
    for (; j % width != 0; --j) {
        const double* column = L.columns + (j - 1) * L.stride;
        double rest = x[j - 1];
        for (size_t i = j; i < n; ++i) rest -= column[i] * x[i];
        x[j - 1] = rest * L.inverse[j - 1];
    }
    while (j > 0) {
        j -= width;
        const double* columns = L.columns + j * L.stride;
        VecD sums[width] = {};
        size_t i = j + width;
        for (; i + width <= n; i += width) {
            const VecD xi = load(x + i);
            for (size_t k = 0; k < width; ++k) sums[k] += load(columns + k * L.stride + i) * xi;
        }
        double rest[width];
        store(rest, load(x + j) - lane_sums<width>(sums));
        for (; i < n; ++i)
            for (size_t k = 0; k < width; ++k) rest[k] -= columns[k * L.stride + i] * x[i];
        for (size_t k = width; k-- > 0;) {
            x[j + k] = rest[k] * L.inverse[j + k];
            for (size_t other = 0; other < k; ++other) rest[other] -= columns[other * L.stride + j + k] * x[j + k];
        }
    }
}

static void rotate(double c, double s, const double* x, double* carry, double* out, size_t n) {
    size_t i = 0;
    for (; i + kDoubles <= n; i += kDoubles) {
        const VecD xi = load(x + i), rest = load(carry + i);
        store(out + i, c * xi + s * rest);
        store(carry + i, c * rest - s * xi);
    }
    for (; i < n; ++i) {
        const double xi = x[i], rest = carry[i];
        out[i] = c * xi + s * rest;
        carry[i] = c * rest - s * xi;
    }
}

static double worst(const double* e, double b, const double* z, const double* lower, const double* upper, size_t n) {
    VecD largest = {};
    size_t i = 0;
    for (; i + kDoubles <= n; i += kDoubles) {
        const VecD g = load(e + i) + b, zi = load(z + i);
        const VecD up = zi < load(upper + i) ? -g : VecD{};
        const VecD down = zi > load(lower + i) ? g : VecD{};
        const VecD both = up > down ? up : down;
        largest = both > largest ? both : largest;
    }
    double found = 0.0;
    for (size_t lane = 0; lane < kDoubles; ++lane) found = largest[lane] > found ? largest[lane] : found;
    for (; i < n; ++i) {
        const double g = e[i] + b;
        if (z[i] < upper[i] && -g > found) found = -g;
        if (z[i] > lower[i] && g > found) found = g;
    }
    return found;
}

[[gnu::always_inline]] static inline std::int64_t lane_or(MaskD mask) {
    std::int64_t any = 0;
    for (size_t lane = 0; lane < kDoubles; ++lane) any |= mask[lane];
    return any;
}

static size_t suspects(const double* e, double b, const double* z, const double* lower, const double* upper,
                       double limit, size_t n, std::uint32_t* found) {
    size_t count = 0, i = 0;
    for (; i + kDoubles <= n; i += kDoubles) {
        const VecD g = load(e + i) + b, zi = load(z + i);
        const MaskD up = (zi < load(upper + i)) & (g < limit);
        const MaskD down = (zi > load(lower + i)) & (-g < limit);
        const MaskD either = up | down;
        if (!lane_or(either)) continue;
        for (size_t lane = 0; lane < kDoubles; ++lane) {
            found[count] = static_cast<std::uint32_t>(i + lane);
            count += either[lane] != 0;
        }
    }
    for (; i < n; ++i) {
        const double g = e[i] + b;
        if ((z[i] < upper[i] && g < limit) || (z[i] > lower[i] && -g < limit))
            found[count++] = static_cast<std::uint32_t>(i);
    }
    return count;
}

static size_t count_nonzero(const double* a, size_t n) {
    MaskD minus = {};
    size_t i = 0, count = 0;
    for (; i + kDoubles <= n; i += kDoubles) minus += load(a + i) != 0.0;
    for (size_t lane = 0; lane < kDoubles; ++lane) count += static_cast<size_t>(-minus[lane]);
    for (; i < n; ++i) count += a[i] != 0.0;
    return count;
}

static Sums sums(const double* a, size_t n) {
    VecD sum = {}, size = {};
    size_t i = 0;
    for (; i + kDoubles <= n; i += kDoubles) {
        const VecD ai = load(a + i);
        sum += ai;
        size += ai < 0.0 ? -ai : ai;
    }
    Sums found{lane_sum(sum), lane_sum(size)};
    for (; i < n; ++i) {
        found.sum += a[i];
        found.size += a[i] < 0.0 ? -a[i] : a[i];
    }
    return found;
}

static double absolute_dot(const double* a, const double* b, size_t n) {
    constexpr size_t chains = 4;
    VecD sums[chains] = {};
    size_t i = 0;
    for (; i + chains * kDoubles <= n; i += chains * kDoubles)
        for (size_t c = 0; c < chains; ++c) {
            const VecD ac = load(a + i + c * kDoubles);
            sums[c] += (ac < 0.0 ? -ac : ac) * load(b + i + c * kDoubles);
        }
    double total = lane_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; i < n; ++i) total += (a[i] < 0.0 ? -a[i] : a[i]) * b[i];
    return total;
}

constexpr SolverLoops solver_loops{axpy,   axpy4, axpy_narrow, add_narrow8,   solve_forward, solve_backward,
                                   rotate, worst, suspects,    count_nonzero, sums,          absolute_dot};

}  // namespace steelyard::STEELYARD_LEVEL
