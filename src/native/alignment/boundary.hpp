// Functions over a kernel matrix for kernel boundary alignment; each function reads the large matrix once.
//
// The current kernel of rows x and z is row_factor[x] * reference_factor[z] * K[x, z].
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace steelyard {

struct KernelView {
    const double* K;  // kernel values without factors, (n_rows, n_reference), row-major
    std::size_t n_rows, n_reference;
    const double* row_factor;
    const double* reference_factor;
    bool symmetric = false;  // rows and reference rows are the same, so K[x, z] may be read as K[z, x]
};

// Boundary points phi_b = (1 - beta) phi(rare[b]) + beta phi(other[b]); rare[b] and other[b] are reference rows.
struct BoundaryPoints {
    std::span<const std::int64_t> rare, other;
    double beta;
    const double* lengths;  // squared length of each point in feature space
};

// out[r * m + c] = current kernel of rows[r] and rows[c], with m = rows.size(); row_factor scales both rows.
void scaled_part(const KernelView& view, std::span<const std::int64_t> rows, double* out, unsigned n_threads);

// out[x] = sum over r of coefficients[r] * K[rows[r], x] for a symmetric matrix. Reads only the listed rows of K.
void weighted_rows(const KernelView& view, std::span<const std::int64_t> rows, const double* coefficients, double* out,
                   unsigned n_threads);

// Returns i * n + j for an entry (i, j) with i >= j where K[i, j] and K[j, i] differ by more than `tolerance` or are
// not finite; n * n if there is none. K is n by n.
std::size_t find_asymmetry(const double* K, std::size_t n, double tolerance, unsigned n_threads);

// out[x] = the largest of -|phi(x) - phi_b|^2 / widths[b] over all points; self[x] = |phi(x)|^2.
void largest_exponents(const KernelView& view, const double* self, const BoundaryPoints& points, const double* widths,
                       double* out, unsigned n_threads);

// out[b] = mean squared distance of point b to the other points with a squared distance below `limit`, at most the
// `max_count` nearest of them; if there are none, the squared distance to the nearest point; 0 if there is no other
// point. Points that coincide up to rounding do not count as other points.
void mean_near_distances(const KernelView& view, const BoundaryPoints& points, double limit, std::size_t max_count,
                         double* out, unsigned n_threads);

}  // namespace steelyard
