// Hot loops of kernel boundary alignment.
// The loops compute distances from one boundary point to many rows, and inner products of boundary points.
#pragma once

#include <cstddef>
#include <cstdint>

namespace steelyard {

// One boundary point in the form that the loop over many rows needs.
struct BumpRows {
    const double* rare;  // kernel values of all rows with the two rows that define the point
    const double* other;
    double rare_weight, other_weight;  // twice the weights of the two rows that define the point, times their factors
    double length;                     // squared length of the point in feature space
    double inverse_width;
};

// Boundary points: point c is rare_part[c] times row rare[c] plus other_part[c] times row other[c] in feature space.
struct PointParts {
    const std::int64_t *rare, *other;
    const double *rare_part, *other_part;
    std::size_t n;
};

struct BoundaryLoops {
    // out[x] = max(out[x], -squared distance of row x to the point / width). self[x] is the squared length of row x.
    void (*raise)(const BumpRows& bump, const double* self, const double* factor, double* out, std::size_t n);
    // out[c] = inner product of boundary point c with another boundary point, given by the kernel rows of its two rows.
    void (*products)(const PointParts& points, const double* rare_row, double rare_part, const double* other_row,
                     double other_part, double* out);
};

}  // namespace steelyard
