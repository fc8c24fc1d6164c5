// What is known of a two-class C-SVM, and the conditions of its optimum; the formulas stand in svm_problem.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "svm/margin_factor.hpp"

namespace steelyard {

// A coefficient this close to a bound, as a share of the way between the bounds, is at the bound.
constexpr double kAtBound = 1e-10;

struct SvmState {
    std::vector<double> y, z, e, lower, upper;
    std::vector<std::uint32_t> margin;  // samples of the margin set, in the order of the factor
    MarginFactor factor;
    double constant = 1.0;  // what the factor adds to every kernel value
    double bias = 0.0;
    double slack = 0.0;            // what all sums so far can have cost
    std::vector<double> exact_at;  // slack when e was exact: e_i may be off by slack - exact_at_i
    std::uint64_t n_sums = 0;      // additions to e since it was last summed anew
};

// By how much sample i, with the e that is given, violates its conditions.
double violation_of(const SvmState& state, std::size_t i, double e);
// The largest violation of all samples, by the e of the state.
double worst_violation(const SvmState& state);
// What the coefficients lack to sum to zero, as a share of their absolute values.
double imbalance_of(const SvmState& state);
// Whether a coefficient lies strictly between its bounds, by more than roundings.
bool is_between_bounds(const SvmState& state, std::size_t i);

// Where the bias may lie: at least `low`, because of who could grow, and at most `high`, because of who could fall.
struct BiasInterval {
    double low, high;
    std::size_t low_sample, high_sample;
};
BiasInterval apparent_interval(const SvmState& state);

}  // namespace steelyard
