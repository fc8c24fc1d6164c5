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

// Each lane keeps its least and its second least product, and where the least was.
static LeastProduct least_product(const double* a, const double* b, size_t n) {
    VecD least = broadcast(__builtin_inf()), second = least, at = broadcast(0.0);
    size_t k = 0;
    for (; k + kDoubles <= n; k += kDoubles) {
        const VecD product = load(a + k) * load(b + k), larger = product < least ? least : product;
        second = larger < second ? larger : second;
        at = product < least ? broadcast(static_cast<double>(k)) : at;
        least = product < least ? product : least;
    }
    LeastProduct answer{__builtin_inf(), __builtin_inf(), 0};
    const auto take = [&answer](double product, size_t where) {
        const bool smaller = product < answer.least || (product == answer.least && where < answer.at);
        const double larger = smaller ? answer.least : product;
        if (larger < answer.second) answer.second = larger;
        if (smaller) answer.least = product, answer.at = where;
    };
    for (size_t lane = 0; k > 0 && lane < kDoubles; ++lane) {
        take(least[lane], static_cast<size_t>(at[lane]) + lane);
        take(second[lane], n);
    }
    for (; k < n; ++k) take(a[k] * b[k], k);
    return answer;
}

constexpr BallLoops ball_loops{move_heights, least_product};

}  // namespace steelyard::STEELYARD_LEVEL
