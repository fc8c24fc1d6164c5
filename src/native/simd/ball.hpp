// Loops of enclosing balls and ellipsoids: one solver step, and the search for the nearest ball or ellipsoid.
#pragma once

#include "simd/loops_ball.hpp"
#include "vectors.hpp"

namespace steelyard::STEELYARD_LEVEL {

// Number of rows per block of move_heights(). A first pass over a block updates the heights and finds the largest one.
// A second pass finds its row while the block is still in the cache.
constexpr size_t kBallBlock = 64 * kDoubles;

static size_t move_heights(double* heights, const double* row_i, const double* row_j, double factor,
                           const double* closed, size_t n) {
    const VecD factors = broadcast(factor), lowest = broadcast(-kInfinity);
    double best = -kInfinity;
    size_t best_at = 0;
    for (size_t begin = 0; begin < n; begin += kBallBlock) {
        const size_t end = n - begin < kBallBlock ? n : begin + kBallBlock;
        VecD highest = lowest;
        size_t k = begin;
        for (; k + kDoubles <= end; k += kDoubles) {
            const VecD moved = load(heights + k) - factors * (load(row_i + k) - load(row_j + k));
            store(heights + k, moved);
            const VecD open = moved - load(closed + k);
            highest = open > highest ? open : highest;
        }
        double block_best = highest[0];
        for (size_t lane = 1; lane < kDoubles; ++lane)
            if (highest[lane] > block_best) block_best = highest[lane];
        for (; k < end; ++k) {
            heights[k] -= factor * (row_i[k] - row_j[k]);
            if (heights[k] - closed[k] > block_best) block_best = heights[k] - closed[k];
        }
        if (block_best > best) {
            best = block_best;
            for (best_at = begin; heights[best_at] - closed[best_at] != best;) ++best_at;
        }
    }
    return best_at;
}

// Uses two passes without branches. With one pass, the branch predictor could not guess where the minimum changes.
static NearLeast near_least(const double* a, const double* b, double factor, size_t n) {
    VecD lowest = broadcast(kInfinity), place = first_places();
    size_t k = 0;
    for (; k + kDoubles <= n; k += kDoubles) {
        const VecD product = load(a + k) * load(b + k);
        lowest = product < lowest ? product : lowest;
    }
    double least = lane_least(lowest);
    for (; k < n; ++k) least = a[k] * b[k] < least ? a[k] * b[k] : least;

    const double enough = factor * least;
    const VecD bound = broadcast(enough), none = broadcast(0.0), one = broadcast(1.0);
    VecD counts = none, places = none;
    for (k = 0; k + kDoubles <= n; k += kDoubles, place += broadcast(static_cast<double>(kDoubles))) {
        const VecD product = load(a + k) * load(b + k);
        counts += product <= bound ? one : none;
        places += product <= bound ? place : none;
    }
    double count = lane_sum(counts), at = lane_sum(places);
    for (; k < n; ++k) {
        const bool near = a[k] * b[k] <= enough;
        count += near ? 1.0 : 0.0;
        at += near ? static_cast<double>(k) : 0.0;
    }
    return {static_cast<size_t>(count), static_cast<size_t>(at)};
}

static double squared_distance(const double* x, const double* z, size_t d) {
    double sum = 0.0;
    for (size_t k = 0; k < d; ++k) sum = multiply_add(x[k] - z[k], x[k] - z[k], sum);
    return sum;
}

static void shift_rows(const double* X, size_t n, size_t d, const double* shift, double* out, double* squares) {
    for (size_t i = 0; i < n; ++i, X += d, out += d) {
        VecD sum{};
        size_t k = 0;
        for (; k + kDoubles <= d; k += kDoubles) {
            const VecD shifted = load(X + k) - load(shift + k);
            store(out + k, shifted);
            sum += shifted * shifted;
        }
        double square = lane_sum(sum);
        for (; k < d; ++k) {
            out[k] = X[k] - shift[k];
            square += out[k] * out[k];
        }
        squares[i] = square;
    }
}

static NearLeast perhaps_least(const double* products, const double* factors, const double* offsets, double square,
                               double doubt, size_t n) {
    const VecD squares = broadcast(square), above = broadcast(1.0 + doubt), below = broadcast(1.0 - doubt);
    VecD lowest = broadcast(kInfinity), place = first_places();
    for (size_t k = 0; k < n; k += kDoubles) {
        const VecD highest = load(products + k) + above * (load(factors + k) * squares + load(offsets + k));
        lowest = highest < lowest ? highest : lowest;
    }
    const double enough = lane_least(lowest);

    const VecD bound = broadcast(enough), none = broadcast(0.0), one = broadcast(1.0);
    VecD counts = none, places = none;
    for (size_t k = 0; k < n; k += kDoubles, place += broadcast(static_cast<double>(kDoubles))) {
        const VecD least = load(products + k) + below * (load(factors + k) * squares + load(offsets + k));
        counts += least > bound ? none : one;
        places += least > bound ? none : place;
    }
    return {static_cast<size_t>(lane_sum(counts)), static_cast<size_t>(lane_sum(places))};
}

constexpr BallLoops ball_loops{move_heights, near_least, squared_distance, shift_rows, perhaps_least};

}  // namespace steelyard::STEELYARD_LEVEL
