// Kernel boundary alignment: scaled kernel matrices and distances to boundary points in feature space.
//
// The scaled kernel of rows x and z is row_factor[x] * reference_factor[z] * K[x, z]. Each function reads K once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace steelyard {

struct KernelView {
    const double* K;  // kernel values before scaling by the factors, shape (n_rows, n_reference), row-major
    std::size_t n_rows, n_reference;
    const double* row_factor;
    const double* reference_factor;
    // Whether rows and reference rows are the same, so that K[z, x] may be read instead of K[x, z].
    bool symmetric = false;
};

// Boundary points phi_b = (1 - beta) phi(rare[b]) + beta phi(other[b]); rare[b] and other[b] are reference rows.
struct BoundaryPoints {
    std::span<const std::int64_t> rare, other;
    double beta;
    const double* lengths;  // squared length of each point in feature space
};

// out[r * m + c] = scaled kernel of rows[r] and rows[c], where m = rows.size(). row_factor scales both rows.
void scaled_part(const KernelView& view, std::span<const std::int64_t> rows, double* out, unsigned n_threads);

// For a symmetric K, out[x] = sum over r of coefficients[r] * K[rows[r], x]. Only the listed rows of K are read.
void weighted_rows(const KernelView& view, std::span<const std::int64_t> rows, const double* coefficients, double* out,
                   unsigned n_threads);

// Finds an entry of the n by n matrix K that is not finite or differs from its transpose by more than `tolerance`.
// Returns i * n + j for the entry (i, j) found, with i >= j, or n * n if there is none.
std::size_t find_asymmetry(const double* K, std::size_t n, double tolerance, unsigned n_threads);

// out[x] = maximum over all boundary points b of -|phi(x) - phi_b|^2 / widths[b], where self[x] = |phi(x)|^2.
void largest_exponents(const KernelView& view, const double* self, const BoundaryPoints& points, const double* widths,
                       double* out, unsigned n_threads);

// out[b] = mean squared distance of boundary point b to its nearest points (at most `max_count` points).
// Only points with a squared distance below `limit` are used.
// If no other point is closer than `limit`, out[b] is the squared distance to the nearest point.
// Points that coincide up to rounding errors are not counted. out[b] is 0 if there is no other point.
void mean_near_distances(const KernelView& view, const BoundaryPoints& points, double limit, std::size_t max_count,
                         double* out, unsigned n_threads);

}  // namespace steelyard
