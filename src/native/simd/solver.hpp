// Loops over kernel rows and factor columns. Each loop reads memory sequentially and once.
#pragma once

#include "fixed.hpp"

namespace steelyard::STEELYARD_LEVEL {

typedef std::int64_t MaskD STEELYARD_VECTOR(STEELYARD_VECTOR_BYTES);

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

static void axpy_narrow(double a, const float* x, double* y, size_t n) {
    size_t i = 0;
    for (; i + kDoubles <= n; i += kDoubles) store(y + i, load(y + i) + a * widened(x + i));
    for (; i < n; ++i) y[i] += a * static_cast<double>(x[i]);
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

// Source lane for interleaving two vectors in alternating runs of `Run` lanes.
template <size_t Run, size_t Second>
constexpr size_t every_second_run(size_t lane) {
    return lane / Run % 2 * kDoubles + lane / (2 * Run) * (2 * Run) + lane % Run + Second * Run;
}

// Horizontal sums by pairwise addition: lane k of the result is the sum of all lanes of v[k].
template <size_t Count>
STEELYARD_ALWAYS_INLINE static inline VecD lane_sums(VecD* v) {
    if constexpr (Count == 1) {
        return v[0];
    } else {
        // Number of sums that each vector interleaves: lanes i and i + run belong to the same sum.
        constexpr size_t run = kDoubles / Count;
        for (size_t k = 0; k < Count / 2; ++k)
            v[k] = shuffled<every_second_run<run, 0>>(v[2 * k], v[2 * k + 1]) +
                   shuffled<every_second_run<run, 1>>(v[2 * k], v[2 * k + 1]);
        return lane_sums<Count / 2>(v);
    }
}

// Loads the entries of x after the last full vector, padded with zeros.
STEELYARD_ALWAYS_INLINE static inline VecD tail_of(const double* x, size_t n) {
    VecD tail = {};
    for (size_t i = n / kDoubles * kDoubles; i < n; ++i) tail[i % kDoubles] = x[i];
    return tail;
}

static void solve_forward(TriangularFactor L, double* x) {
    constexpr size_t width = kDoubles;
    const size_t n = L.size, whole = n / width * width;
    VecD tail = tail_of(x, n);
    for (size_t j = 0; j < whole; j += width) {  // process several columns per pass over the rest of x
        const double* column[width];
        double minus[width];
        for (size_t k = 0; k < width; ++k) {
            column[k] = L.columns + (j + k) * L.stride;
            const double xk = x[j + k] * L.inverse[j + k];
            for (size_t i = k + 1; i < width; ++i) x[j + i] -= xk * column[k][j + i];
            x[j + k] = xk;
            minus[k] = -xk;
        }
        for (size_t i = j + width; i < whole; i += width) {
            VecD sum = load(x + i), other = {};
            for (size_t k = 0; k < width; k += 2) {
                sum += minus[k] * load(column[k] + i);
                other += minus[k + 1] * load(column[k + 1] + i);
            }
            store(x + i, sum + other);
        }
        for (size_t k = 0; k < width; ++k) tail += minus[k] * load(column[k] + whole);
    }
    for (size_t j = whole; j < n; ++j) x[j] = tail[j - whole];
    for (size_t j = whole; j < n; ++j) {
        x[j] *= L.inverse[j];
        for (size_t i = j + 1; i < n; ++i) x[i] -= x[j] * L.columns[j * L.stride + i];
    }
}

static void solve_backward(TriangularFactor L, double* x) {
    constexpr size_t width = kDoubles;
    const size_t n = L.size, whole = n / width * width;
    for (size_t j = n; j > whole; --j) {
        const double* column = L.columns + (j - 1) * L.stride;
        double rest = x[j - 1];
        for (size_t i = j; i < n; ++i) rest -= column[i] * x[i];
        x[j - 1] = rest * L.inverse[j - 1];
    }
    const VecD tail = tail_of(x, n);
    for (size_t j = whole; j > 0;) {
        j -= width;
        const double* columns = L.columns + j * L.stride;
        VecD sums[width];
        for (size_t k = 0; k < width; ++k) sums[k] = load(columns + k * L.stride + whole) * tail;
        // The order is descending, so that the entry that was computed last is used last, which hides its latency.
        for (size_t i = whole; i > j + width;) {
            i -= width;
            const VecD xi = load(x + i);
            for (size_t k = 0; k < width; ++k) sums[k] += load(columns + k * L.stride + i) * xi;
        }
        double rest[width];
        store(rest, load(x + j) - lane_sums<width>(sums));
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

static double steps_to_bounds(const double* z, const double* lower, const double* upper, const double* dz, size_t n,
                              double* steps) {
    constexpr double infinity = kInfinity;
    VecD smallest = broadcast(infinity);
    size_t i = 0;
    for (; i + kDoubles <= n; i += kDoubles) {
        const VecD change = load(dz + i), above = load(upper + i) - load(z + i), below = load(z + i) - load(lower + i);
        const VecD room = change > 0.0 ? above : below, speed = change < 0.0 ? -change : change;
        VecD step = (room < 0.0 ? VecD{} : room) / speed;
        step = speed > 0.0 ? step : broadcast(infinity);
        smallest = step < smallest ? step : smallest;
        store(steps + i, step);
    }
    double found = infinity;
    for (size_t lane = 0; lane < kDoubles; ++lane) found = smallest[lane] < found ? smallest[lane] : found;
    for (; i < n; ++i) {
        const double room = dz[i] > 0.0 ? upper[i] - z[i] : z[i] - lower[i], speed = dz[i] < 0.0 ? -dz[i] : dz[i];
        steps[i] = speed > 0.0 ? (room < 0.0 ? 0.0 : room) / speed : infinity;
        found = steps[i] < found ? steps[i] : found;
    }
    return found;
}

static void move_within(double step, const double* dz, const double* lower, const double* upper, double* z, size_t n) {
    size_t i = 0;
    for (; i + kDoubles <= n; i += kDoubles) {
        const VecD moved = load(z + i) + step * load(dz + i), low = load(lower + i), high = load(upper + i);
        const VecD raised = moved < low ? low : moved;
        store(z + i, raised > high ? high : raised);
    }
    for (; i < n; ++i) {
        const double moved = z[i] + step * dz[i], raised = moved < lower[i] ? lower[i] : moved;
        z[i] = raised > upper[i] ? upper[i] : raised;
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

STEELYARD_ALWAYS_INLINE static inline std::int64_t lane_or(MaskD mask) {
    std::int64_t any = 0;
    for (size_t lane = 0; lane < kDoubles; ++lane) any |= mask[lane];
    return any;
}

static size_t suspects(const double* e, double b, const double* z, const double* lower, const double* upper,
                       double slack, const double* exact_at, size_t n, std::uint32_t* found) {
    size_t count = 0, i = 0;
    for (; i + kDoubles <= n; i += kDoubles) {
        const VecD g = load(e + i) + b, zi = load(z + i), limit = slack - load(exact_at + i);
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
        const double g = e[i] + b, limit = slack - exact_at[i];
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

constexpr SolverLoops solver_loops{axpy,       axpy4,         axpy_narrow,    add_narrow8, add_fixed16,     to_fixed,
                                   from_fixed, solve_forward, solve_backward, rotate,      steps_to_bounds, move_within,
                                   worst,      suspects,      count_nonzero,  sums,        absolute_dot};

}  // namespace steelyard::STEELYARD_LEVEL
