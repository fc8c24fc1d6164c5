// Hot loops of kernel boundary alignment.
// A boundary point is a point in feature space between two rows, one of the rare class and one of the other class.
#pragma once

#include <cstddef>
#include <cstdint>

namespace steelyard {

// A bump: a Gaussian exp(-squared distance / width) in feature space, centred at one boundary point.
struct BumpRows {
    const double* rare;                // kernel values of all rows with the row of the rare class
    const double* other;               // kernel values of all rows with the row of the other class
    double rare_weight, other_weight;  // twice the weight of each of the two rows, times its kernel factor
    double length;                     // squared length of the boundary point in feature space
    double inverse_width;
};

// Boundary points: point c is rare_part[c] times row rare[c] plus other_part[c] times row other[c] in feature space.
struct PointParts {
    const std::int64_t *rare, *other;
    const double *rare_part, *other_part;
    std::size_t n;
};

struct BoundaryLoops {
    // out[x] = max(out[x], -squared distance of row x to the centre / width), the largest exponent of all bumps so far.
    // self[x] is the squared length of row x, and factor[x] its kernel factor.
    void (*raise)(const BumpRows& bump, const double* self, const double* factor, double* out, std::size_t n);
    // out[c] = inner product of boundary point c with one further boundary point.
    // The further point is rare_part times the row with kernel values rare_row plus other_part times that of other_row.
    void (*products)(const PointParts& points, const double* rare_row, double rare_part, const double* other_row,
                     double other_part, double* out);
};

}  // namespace steelyard
