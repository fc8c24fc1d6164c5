// The rule of the proximal learners for few features: from class-wise sums to planes, in one go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proximal/exact_sums.hpp"

namespace steelyard {

struct PlaneRule {
    double C = 1.0;
    bool balanced = true;  // else every row counts once, or as `factors` say
    bool standardize = true;
    bool pairs = false;  // rank all pairs instead of fitting targets
    bool penalize_intercept = true;
    // Cut where the G-mean is largest if the scores of both sides, of two classes as if their rows had not been
    // learned, are normal; not with `pairs`. Else at zero (pairs: half-way between the mean scores).
    bool gmean = false;
    std::vector<double> factors = {};  // how much a row of each class counts, if not balanced; empty: 1
};

// Two classes share one plane, whose positive side is the second.
inline std::size_t n_planes_of(std::size_t n_classes) { return n_classes > 2 ? n_classes : 1; }

// Writes normals (a row a plane), intercepts and the mean slope of the log-odds. False if a matrix is not positive
// definite in rounded numbers; nothing of use is written then.
bool solve_planes(const ExactView& view, const PlaneRule& rule, double* coef, double* intercept, double* slope);

}  // namespace steelyard
