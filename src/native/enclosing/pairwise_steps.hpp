// Sequential minimal optimization with second-order pair selection: approaches the optimum from far away, and recovers
// when steps along the margin set are impossible.
#pragma once

#include <cstddef>

#include "kernels/kernel_rows.hpp"
#include "svm/svm_state.hpp"

namespace steelyard {

// Moves pairs of coefficients until no pair violates the conditions by more than twice the threshold or max_steps is
// reached; returns the number of steps. Changes only z and e of the state, and e with the precision of kernel rows.
std::size_t pairwise_steps(KernelRows& rows, SvmState& state, double threshold, std::size_t max_steps);

}  // namespace steelyard
