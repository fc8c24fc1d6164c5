// Several C-SVMs on the same samples, each with bounds and a kernel of its own, solved as well as it takes to compare
// decision values. They start without multipliers: from those of a similar machine it takes as many steps.
#pragma once

#include <cstddef>

namespace steelyard {

// The samples that all machines share; fewer than 2^31.
struct RoughSamples {
    const double* K;  // (n, n), symmetric: kernel values before any factor
    const double* signs;
    std::size_t n;
};

// In signed multipliers z_i = y_i alpha_i, with 0 <= alpha_i <= bounds[i] and sum(z) = 0.
struct RoughMachine {
    const double* factor;    // the current kernel is factor[i] * factor[j] * K[i, j]
    const double* bounds;    // 0 for samples that take no part
    const bool* likely;      // samples whose multipliers may move from the beginning
    double* z;               // out: the solution
    double* scores;          // out: decision values of all samples
    double intercept = 0.0;  // out
};

struct RoughAim {
    double tolerance;  // no pair of multipliers that may move violates the conditions of the optimum by more
    double slack;      // no margin of another sample that takes part is below 1 by more: if one is, it may move too
};

// Kernel values that are used are kept in single precision.
void solve_roughly(const RoughSamples& samples, RoughMachine* machines, std::size_t n_machines, RoughAim aim,
                   unsigned n_threads);

}  // namespace steelyard
