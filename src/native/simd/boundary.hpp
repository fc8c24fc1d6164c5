// Loops of kernel boundary alignment; see loops_boundary.hpp. The compiler vectorizes both loops.
#pragma once

#include "simd/loops_boundary.hpp"
#include "vectors.hpp"

namespace steelyard::STEELYARD_LEVEL {

static void raise_to_bump(const BumpRows& b, const double* self, const double* factor, double* out, size_t n) {
    const BumpRows bump = b;  // local copy that `out` cannot alias
    for (size_t x = 0; x < n; ++x) {
        const double products = bump.rare_weight * bump.rare[x] + bump.other_weight * bump.other[x];
        const double squared = self[x] + bump.length - factor[x] * products;
        const double exponent = -(squared > 0.0 ? squared : 0.0) * bump.inverse_width;
        out[x] = out[x] > exponent ? out[x] : exponent;
    }
}

static void point_products(const PointParts& points, const double* rare_row, double rare_part, const double* other_row,
                           double other_part, double* out) {
    const PointParts p = points;
    for (size_t c = 0; c < p.n; ++c) {
        const double from_rare = p.rare_part[c] * rare_row[p.rare[c]] + p.other_part[c] * rare_row[p.other[c]];
        const double from_other = p.rare_part[c] * other_row[p.rare[c]] + p.other_part[c] * other_row[p.other[c]];
        out[c] = rare_part * from_rare + other_part * from_other;
    }
}

constexpr BoundaryLoops boundary_loops{raise_to_bump, point_products};

}  // namespace steelyard::STEELYARD_LEVEL
