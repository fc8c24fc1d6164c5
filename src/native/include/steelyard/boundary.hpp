// Passes over a kernel matrix for kernel boundary alignment: the matrix is large, so each is made once.
//
// The current kernel of rows x and z is row_factor[x] * reference_factor[z] * K[x, z].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace steelyard {

struct KernelView {
    const double* K;  // row-major
    std::size_t n_rows, n_reference;
    const double* row_factor;
    const double* reference_factor;
};

// Points (1 - beta) phi(rare[b]) + beta phi(other[b]) between reference rows.
struct BoundaryPoints {
    std::span<const std::int64_t> rare, other;
    double beta;
    const double* lengths;  // squared, in feature space
};

// out[r * m + c] = current kernel of rows[r] and rows[c], m = rows.size(); factors of both sides are row_factor.
void scaled_part(const KernelView& view, std::span<const std::int64_t> rows, double* out, unsigned n_threads);

// out[x] = the largest of -|phi(x) - phi_b|^2 / widths[b] over all points; self[x] = |phi(x)|^2.
void largest_exponents(const KernelView& view, const double* self, const BoundaryPoints& points, const double* widths,
                       double* out, unsigned n_threads);

// out[(b - begin) * n + c] = |phi_b - phi_c|^2 for begin <= b < end and all n points c; rows are reference rows here.
void point_distances(const KernelView& view, const BoundaryPoints& points, std::size_t begin, std::size_t end,
                     double* out, unsigned n_threads);

}  // namespace steelyard
