// The smallest ball around weighted points in a given inner product, some points left outside if that pays.
//
//   min R^2 + sum of bounds[i] * max(0, |phi(x_i) - a|^2 - R^2)
//   dual: max sum alpha_i k(x_i, x_i) - alpha'K alpha,   sum alpha = 1,  0 <= alpha_i <= bounds[i]
//
// The centre is a = sum of alpha_i phi(x_i). With bounds of 1 or more nothing stays outside.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "common/rows.hpp"
#include "simd/loops_kernel.hpp"

namespace steelyard {

struct BallProblem {
    KernelSpec spec;  // positive definite; the solution is a stationary point otherwise
    Rows<double> rows;
    std::span<const double> bounds;  // one a row, above 0; their sum is at least 1
};

struct BallSettings {
    double tolerance;         // of the optimality conditions, as a fraction of R^2
    std::size_t cache_bytes;  // for kernel rows; two rows are always kept
    std::size_t max_steps;    // on each level of refinement
    unsigned n_threads;
};

struct Ball {
    std::vector<double> alpha;
    std::vector<double> squared_distances;  // of every row to the centre
    double squared_radius;                  // the mean over the rows with 0 < alpha < bound
    double gap;                             // what is left of the optimality conditions, as a fraction of R^2
    std::size_t steps;
};

// Sequential minimal optimisation: second-order working sets, shrinking, kernel rows on demand, started from the
// solution for every fourth row. Deterministic; the result does not depend on n_threads. n_rows is at least 1.
Ball enclosing_ball(const BallProblem& problem, const BallSettings& settings);

}  // namespace steelyard
