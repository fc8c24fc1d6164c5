// Approximate solver for several C-SVMs on the same samples, each with its own bounds and kernel.
// Solutions are only accurate enough to compare the decision values of different parameters.
// All multipliers start at 0. A warm start would need as many steps.
#pragma once

#include <cstddef>

namespace steelyard {

// Samples shared by all SVMs. There must be fewer than 2^31 samples.
struct RoughSamples {
    const double* K;  // kernel values before scaling by the factors, symmetric, shape (n, n)
    const double* signs;
    std::size_t n;
};

// One SVM in signed multipliers z_i = y_i alpha_i, with 0 <= alpha_i <= bounds[i] and sum(z) = 0.
struct RoughMachine {
    const double* factor;    // the scaled kernel is factor[i] * factor[j] * K[i, j]
    const double* bounds;    // upper bounds of the multipliers; 0 for samples that are not used
    const bool* working;     // whether each sample is in the initial working set
    double* z;               // output: the signed multipliers of the solution
    double* scores;          // output: the decision values of all samples
    double intercept = 0.0;  // output: the intercept of the solution
};

struct RoughAccuracy {
    double tolerance;  // maximum violation of the optimality conditions by a pair in the working set
    double slack;      // minimum margin violation of samples that join the working set
};

// Solves all SVMs. Kernel values are cached in single precision.
void solve_roughly(const RoughSamples& samples, RoughMachine* machines, std::size_t n_machines, RoughAccuracy accuracy,
                   unsigned n_threads);

}  // namespace steelyard
