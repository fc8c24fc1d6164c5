// Native solver of the proximal SVM for small systems: Cholesky factorization of matrices of class-wise sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proximal/sufficient_statistics.hpp"

namespace steelyard {

struct PlaneRule {
    double C = 1.0;
    bool balanced = true;  // if false, rows have weight 1 or the weight of their class in `factors`
    bool standardize = true;
    bool pairs = false;  // use the squared loss over all pairs (AUC) instead of targets +1 and -1
    bool penalize_intercept = true;
    // Whether each threshold maximizes the G-mean of normally distributed scores. Must be false with `pairs`.
    // For two classes, the moments of the scores are leave-one-out moments.
    // If `gmean` is false, the threshold is zero, or with `pairs` the middle of the mean scores.
    bool gmean = false;
    std::vector<double> factors = {};  // weight of the rows of each class if not balanced; empty if all weights are 1
};

// Returns the number of planes. Two classes share one plane, whose scores are positive for the second class.
inline std::size_t n_planes_of(std::size_t n_classes) { return n_classes > 2 ? n_classes : 1; }

// Writes the normals (one row per plane), the intercepts and the mean slope of the log-odds.
// Returns false, with undefined output, if a matrix is not positive definite in floating-point arithmetic.
bool solve_planes(const ExactView& view, const PlaneRule& rule, double* coef, double* intercept, double* slope);

}  // namespace steelyard
