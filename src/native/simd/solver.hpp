// Loops over kernel rows and factor columns: everything is streamed once, in order.
#pragma once

#include "steelyard/loops_solver.hpp"
#include "vectors.hpp"

namespace steelyard::STEELYARD_LEVEL {

[[gnu::always_inline]] static inline double lane_sum(VecD v) {
    double total = 0.0;
    for (size_t lane = 0; lane < kDoubles; ++lane) total += v[lane];
    return total;
}

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

static void add_narrow8(const float* a, const float* const* x, double* y, size_t n) {
    const float *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3], *x4 = x[4], *x5 = x[5], *x6 = x[6], *x7 = x[7];
    size_t i = 0;
    for (; i + kFloats <= n; i += kFloats) {
        const VecF first = (a[0] * load(x0 + i) + a[1] * load(x1 + i)) + (a[2] * load(x2 + i) + a[3] * load(x3 + i));
        const VecF second = (a[4] * load(x4 + i) + a[5] * load(x5 + i)) + (a[6] * load(x6 + i) + a[7] * load(x7 + i));
        float sums[kFloats];
        store(sums, first + second);
        store(y + i, load(y + i) + widened(sums));
        store(y + i + kDoubles, load(y + i + kDoubles) + widened(sums + kDoubles));
    }
    for (; i < n; ++i) {
        const float first = (a[0] * x0[i] + a[1] * x1[i]) + (a[2] * x2[i] + a[3] * x3[i]);
        const float second = (a[4] * x4[i] + a[5] * x5[i]) + (a[6] * x6[i] + a[7] * x7[i]);
        y[i] += static_cast<double>(first + second);
    }
}

static void dot4(const double* const* x, const double* y, size_t n, double* out) {
    const double *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];
    VecD sum0 = {}, sum1 = {}, sum2 = {}, sum3 = {};
    size_t i = 0;
    for (; i + kDoubles <= n; i += kDoubles) {
        const VecD yi = load(y + i);
        sum0 += load(x0 + i) * yi;
        sum1 += load(x1 + i) * yi;
        sum2 += load(x2 + i) * yi;
        sum3 += load(x3 + i) * yi;
    }
    out[0] = lane_sum(sum0), out[1] = lane_sum(sum1), out[2] = lane_sum(sum2), out[3] = lane_sum(sum3);
    for (; i < n; ++i)
        for (size_t k = 0; k < 4; ++k) out[k] += x[k][i] * y[i];
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

typedef std::int64_t MaskD __attribute__((vector_size(STEELYARD_VECTOR_BYTES)));

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
    VecD sums = {};
    size_t i = 0;
    for (; i + kDoubles <= n; i += kDoubles) {
        const VecD ai = load(a + i);
        sums += (ai < 0.0 ? -ai : ai) * load(b + i);
    }
    double total = lane_sum(sums);
    for (; i < n; ++i) total += (a[i] < 0.0 ? -a[i] : a[i]) * b[i];
    return total;
}

constexpr SolverLoops solver_loops{axpy,  axpy4,    axpy_narrow,   add_narrow8, dot4,        rotate,
                                   worst, suspects, count_nonzero, sums,        absolute_dot};

}  // namespace steelyard::STEELYARD_LEVEL
