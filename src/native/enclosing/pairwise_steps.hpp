// Sequential minimal optimization with second-order pair selection.
// SvmProblem uses SMO steps far from the optimum, and when it cannot make adiabatic steps.
#pragma once

#include <cstddef>

#include "kernels/kernel_rows.hpp"
#include "svm/svm_state.hpp"

namespace steelyard {

// Moves pairs of coefficients until no pair violates the optimality conditions by more than twice the threshold.
// Makes at most max_steps steps and returns their number.
// Changes only z and e of the state. The precision of e is that of the cached kernel rows.
std::size_t pairwise_steps(KernelRows& rows, SvmState& state, double threshold, std::size_t max_steps);

}  // namespace steelyard
