// Sequential minimal optimisation with second-order choice of the pair: gets near the optimum from far away, and
// repairs where steps along the margin set cannot go on.
#pragma once

#include <cstddef>

#include "kernels/kernel_rows.hpp"
#include "svm/svm_state.hpp"

namespace steelyard {

// Moves pairs of coefficients until none violates the conditions by more than twice the threshold, or the steps are
// used up; returns how many were made. Changes z and e of the state alone, and e with the precision of the kernel rows.
std::size_t pairwise_steps(KernelRows& rows, SvmState& state, double threshold, std::size_t max_steps);

}  // namespace steelyard
