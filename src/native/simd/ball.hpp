// Loops of enclosing bodies: one step of the solver, and the nearest of many.
#pragma once

#include "steelyard/loops_ball.hpp"
#include "vectors.hpp"

namespace steelyard::STEELYARD_LEVEL {

// Moves the heights, and finds the highest that may still rise in weight.
// Heights are searched again for the position of the maximum; within one block they are still in the cache.
constexpr size_t kBallBlock = 64 * kDoubles;

static size_t move_heights(double* heights, const double* row_i, const double* row_j, double factor,
                           const double* closed, size_t n) {
    const VecD factors = broadcast(factor), lowest = broadcast(-__builtin_inf());
    double best = -__builtin_inf();
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

static double least_product(const double* a, const double* b, size_t n) {
    VecD least = broadcast(__builtin_inf());
    size_t k = 0;
    for (; k + kDoubles <= n; k += kDoubles) {
        const VecD product = load(a + k) * load(b + k);
        least = product < least ? product : least;
    }
    double smallest = least[0];
    for (size_t lane = 1; lane < kDoubles; ++lane)
        if (least[lane] < smallest) smallest = least[lane];
    for (; k < n; ++k)
        if (a[k] * b[k] < smallest) smallest = a[k] * b[k];
    return smallest;
}

constexpr BallLoops ball_loops{move_heights, least_product};

}  // namespace steelyard::STEELYARD_LEVEL
