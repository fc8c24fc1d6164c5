// Squared distances of many rows to many enclosing bodies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/rows.hpp"

namespace steelyard {

// Returns whether all values are numbers from -limit to limit.
bool all_within(std::span<const double> values, double limit, unsigned n_threads);

// out[i * centers.n_rows + b] = |x_i - center_b|^2, from differences.
void sphere_distances(Rows<double> X, Rows<double> centers, double* out, unsigned n_threads);

// Body b has the axes starts[b] .. starts[b + 1]: out[i * n_bodies + b] is the sum over them of
// (axis'x_i - offset)^2. The distances of a body are bitwise independent of the other bodies.
void ellipsoid_distances(Rows<double> X, Rows<double> axes, std::span<const double> offsets,
                         std::span<const std::size_t> starts, double* out, unsigned n_threads);

// Finds for each row the body with the smallest sqrt(squared distance) / radius, the first of equals, and that ratio.
struct Nearest {
    std::int64_t* body;
    double* ratio;
};

// The same without the matrix of distances; there is at least one body.
void nearest_sphere(Rows<double> X, Rows<double> centers, std::span<const double> radii, Nearest out,
                    unsigned n_threads);
void nearest_ellipsoid(Rows<double> X, Rows<double> axes, std::span<const double> offsets,
                       std::span<const std::size_t> starts, std::span<const double> radii, Nearest out,
                       unsigned n_threads);

}  // namespace steelyard
