// The rule of the proximal learners for few features: from class-wise sums to planes, in one go.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace steelyard {

// Sums of rows in the coordinates z = (x - origin) / unit; matrices are lower triangles of sums of e e', e = [z, -1].
struct PlaneSums {
    std::span<const double> origin, unit, variance;
    std::span<const double> counts;           // by class
    const double* sums;                       // of z, class by class
    const double* total;                      // of all rows
    std::span<const double* const> matrices;  // by class; those of classes without a plane may be null

    std::size_t n_features() const { return origin.size(); }
    std::size_t n_classes() const { return counts.size(); }
    std::size_t n_planes() const { return n_classes() > 2 ? n_classes() : 1; }
    // The positive class of a plane: two classes share one plane, whose positive side is the second.
    std::size_t positive(std::size_t plane) const { return n_classes() > 2 ? plane : n_classes() - 1; }
};

struct PlaneRule {
    double C = 1.0;
    bool balanced = true;  // else every row counts once
    bool standardize = true;
    bool pairs = false;  // rank all pairs instead of fitting targets
    bool penalize_intercept = true;
};

// Writes normals (a row a plane), intercepts and the mean slope of the log-odds, cut at zero (pairs: half-way between
// the mean scores). False if a matrix is not positive definite in rounded numbers; nothing of use is written then.
bool solve_planes(const PlaneSums& sums, const PlaneRule& rule, double* coef, double* intercept, double* slope);

}  // namespace steelyard
