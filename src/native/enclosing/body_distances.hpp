// Squared distances of many rows to many enclosing shapes. A body is a ball (sphere) or an ellipsoid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/rows.hpp"

namespace steelyard {

// Returns whether all values are finite numbers from -limit to limit.
bool all_within(std::span<const double> values, double limit, unsigned n_threads);

// out[i * centers.n_rows + b] = |x_i - center_b|^2, computed as a sum of squared differences.
void sphere_distances(Rows<double> X, Rows<double> centers, double* out, unsigned n_threads);

// out[i * n_bodies + b] = sum of (axis'x_i - offset)^2 over the axes starts[b] .. starts[b + 1] - 1 of body b.
// The distance to a body does not depend on the other bodies, not even by rounding errors.
void ellipsoid_distances(Rows<double> X, Rows<double> axes, std::span<const double> offsets,
                         std::span<const std::size_t> starts, double* out, unsigned n_threads);

// For each row, finds the body with the smallest sqrt(squared distance) / radius, and this ratio.
// If ratios are equal, the first body is selected.
struct Nearest {
    std::int64_t* body;
    double* ratio;
};

// Finds the nearest sphere or ellipsoid of each row without storing the matrix of distances.
// At least one body is required.
void nearest_sphere(Rows<double> X, Rows<double> centers, std::span<const double> radii, Nearest out,
                    unsigned n_threads);
void nearest_ellipsoid(Rows<double> X, Rows<double> axes, std::span<const double> offsets,
                       std::span<const std::size_t> starts, std::span<const double> radii, Nearest out,
                       unsigned n_threads);

}  // namespace steelyard
