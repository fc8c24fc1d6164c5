// Loops over kernel rows and factor columns: everything is streamed once, in order.
#pragma once

#include "steelyard/loops_solver.hpp"
#include "vectors.hpp"

namespace steelyard::STEELYARD_LEVEL {

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

constexpr SolverLoops solver_loops{axpy, axpy4, rotate};

}  // namespace steelyard::STEELYARD_LEVEL
