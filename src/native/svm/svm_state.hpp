// State of a binary C-SVM and its optimality conditions. The formulas are in svm_problem.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "svm/margin_factor.hpp"

namespace steelyard {

// A coefficient is at a bound if its distance to the bound is below this fraction of the distance between the bounds.
constexpr double kAtBound = 1e-10;

struct SvmState {
    std::vector<double> y, z, e, lower, upper;
    std::vector<std::uint32_t> margin;  // samples of the margin set, in the order of the factor
    MarginFactor factor;
    double constant = 1.0;  // constant that the factor adds to every kernel value
    double bias = 0.0;
    double slack = 0.0;            // error bound accumulated over all sums so far
    std::vector<double> exact_at;  // value of slack when e_i was last exact; the error of e_i is <= slack - exact_at[i]
    std::uint64_t n_sums = 0;      // number of additions to e since it was last recomputed
};

// Returns the amount by which sample i violates its optimality conditions for a given e.
double violation_of(const SvmState& state, std::size_t i, double e);
// Returns the largest violation of all samples.
double worst_violation(const SvmState& state);
// Returns |sum(z)| relative to sum(|z|).
double imbalance_of(const SvmState& state);
// Returns whether a coefficient is strictly between its bounds by more than rounding errors.
bool is_between_bounds(const SvmState& state, std::size_t i);

// Interval of the bias. Samples below their upper bound require the bias to be at least `low`.
// Samples above their lower bound require the bias to be at most `high`.
struct BiasInterval {
    double low, high;
    std::size_t low_sample, high_sample;
};
BiasInterval apparent_interval(const SvmState& state);

}  // namespace steelyard
