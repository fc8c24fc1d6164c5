// Passes over a kernel matrix for kernel boundary alignment; each reads the large matrix once.
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
    bool symmetric = false;  // rows and reference rows are the same, so K[x, z] may be read as K[z, x]
};

// Points (1 - beta) phi(rare[b]) + beta phi(other[b]) between reference rows.
struct BoundaryPoints {
    std::span<const std::int64_t> rare, other;
    double beta;
    const double* lengths;  // squared, in feature space
};

// out[r * m + c] = current kernel of rows[r] and rows[c], m = rows.size(); row_factor is used for both.
void scaled_part(const KernelView& view, std::span<const std::int64_t> rows, double* out, unsigned n_threads);

// out[x] = sum over r of coefficients[r] * K[rows[r], x] for a symmetric matrix; only these rows are read.
void weighted_rows(const KernelView& view, std::span<const std::int64_t> rows, const double* coefficients, double* out,
                   unsigned n_threads);

// Returns i * n + j for an entry (i, j) with i >= j where K[i, j] and K[j, i] differ by more than `tolerance` or are
// not finite; n * n if there is none. K is n by n.
std::size_t find_asymmetry(const double* K, std::size_t n, double tolerance, unsigned n_threads);

// out[x] = the largest of -|phi(x) - phi_b|^2 / widths[b] over all points; self[x] = |phi(x)|^2.
void largest_exponents(const KernelView& view, const double* self, const BoundaryPoints& points, const double* widths,
                       double* out, unsigned n_threads);

// out[b] = mean squared distance to the other points closer than `limit` (squared), at most the `max_count` nearest;
// the distance to the nearest point if none is that close; 0 if there is no other point. Points that coincide up to
// rounding do not count as other points.
void mean_near_distances(const KernelView& view, const BoundaryPoints& points, double limit, std::size_t max_count,
                         double* out, unsigned n_threads);

}  // namespace steelyard
