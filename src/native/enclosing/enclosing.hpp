// Smallest enclosing ball of points in the feature space of a kernel, with a weighted penalty for points outside.
//
//   min R^2 + sum of bounds[i] * max(0, |phi(x_i) - a|^2 - R^2)
//   dual: max sum alpha_i k(x_i, x_i) - alpha'K alpha,   sum alpha = 1,  0 <= alpha_i <= bounds[i]
//
// The center is a = sum of alpha_i phi(x_i). With bounds of 1 or more no point is outside.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/rows.hpp"
#include "simd/loops_kernel.hpp"

namespace steelyard {

struct BallProblem {
    KernelSpec spec;  // should be positive definite; otherwise the solver finds only a stationary point
    Rows<double> rows;
    std::span<const double> bounds;  // one positive bound per row, with a sum of at least 1
};

struct BallSettings {
    double tolerance;         // maximum violation of the optimality conditions, relative to R^2
    std::size_t cache_bytes;  // size of the cache of kernel rows; at least two rows are cached
    std::size_t max_steps;    // maximum number of steps per refinement level
    unsigned n_threads;
};

struct Ball {
    std::vector<double> alpha;
    std::vector<double> squared_distances;  // squared distance of every row to the center
    double squared_radius;                  // mean squared distance of the rows with 0 < alpha < bound
    double gap;                             // remaining violation of the optimality conditions, relative to R^2
    std::size_t steps;
};

// Sequential minimal optimization with second-order working set selection, shrinking and a kernel cache.
// The solver starts from the solution for every fourth row. Results do not depend on n_threads. n_rows must be >= 1.
Ball enclosing_ball(const BallProblem& problem, const BallSettings& settings);

}  // namespace steelyard
