#include "steelyard/boundary.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "steelyard/threads.hpp"

namespace steelyard {

namespace {

constexpr std::size_t kTaskRows = 64;

// Calls body(begin, end) for runs of rows.
template <class Body>
void for_runs(std::size_t n_rows, unsigned n_threads, Body&& body) {
    parallel_for((n_rows + kTaskRows - 1) / kTaskRows, n_threads,
                 [&](std::size_t task) { body(task * kTaskRows, std::min(n_rows, (task + 1) * kTaskRows)); });
}

}  // namespace

void scaled_part(const KernelView& view, std::span<const std::int64_t> rows, double* out, unsigned n_threads) {
    const std::size_t m = rows.size();
    for_runs(m, n_threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t r = begin; r < end; ++r) {
            const double* row = view.K + static_cast<std::size_t>(rows[r]) * view.n_reference;
            const double factor = view.row_factor[rows[r]];
            double* target = out + r * m;
            // Factors first: the product of two factors does not depend on their order, so symmetry stays exact.
            if (m == view.n_reference)
                for (std::size_t c = 0; c < m; ++c) target[c] = (factor * view.row_factor[c]) * row[c];
            else
                for (std::size_t c = 0; c < m; ++c) target[c] = (factor * view.row_factor[rows[c]]) * row[rows[c]];
        }
    });
}

void largest_exponents(const KernelView& view, const double* self, const BoundaryPoints& points, const double* widths,
                       double* out, unsigned n_threads) {
    const std::size_t n = points.rare.size();
    std::vector<double> rare_part(n), other_part(n), inverse(n);
    for (std::size_t b = 0; b < n; ++b) {
        rare_part[b] = 2.0 * (1.0 - points.beta) * view.reference_factor[points.rare[b]];
        other_part[b] = 2.0 * points.beta * view.reference_factor[points.other[b]];
        inverse[b] = 1.0 / widths[b];
    }
    for_runs(view.n_rows, n_threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t x = begin; x < end; ++x) {
            const double* row = view.K + x * view.n_reference;
            const double factor = view.row_factor[x], own = self[x];
            double largest = -std::numeric_limits<double>::infinity();
            for (std::size_t b = 0; b < n; ++b) {
                const double products = rare_part[b] * row[points.rare[b]] + other_part[b] * row[points.other[b]];
                const double squared = std::max(0.0, own + points.lengths[b] - factor * products);
                largest = std::max(largest, -squared * inverse[b]);
            }
            out[x] = largest;
        }
    });
}

void point_distances(const KernelView& view, const BoundaryPoints& points, std::size_t begin, std::size_t end,
                     double* out, unsigned n_threads) {
    const std::size_t n = points.rare.size();
    const auto &rare = points.rare, &other = points.other;
    std::vector<double> rare_part(n), other_part(n);
    for (std::size_t b = 0; b < n; ++b) {
        rare_part[b] = (1.0 - points.beta) * view.reference_factor[rare[b]];
        other_part[b] = points.beta * view.reference_factor[other[b]];
    }
    for_runs(end - begin, n_threads, [&](std::size_t first, std::size_t last) {
        for (std::size_t b = begin + first; b < begin + last; ++b) {
            const double* rare_row = view.K + static_cast<std::size_t>(rare[b]) * view.n_reference;
            const double* other_row = view.K + static_cast<std::size_t>(other[b]) * view.n_reference;
            double* target = out + (b - begin) * n;
            for (std::size_t c = 0; c < n; ++c) {
                const double from_rare = rare_part[c] * rare_row[rare[c]] + other_part[c] * rare_row[other[c]];
                const double from_other = rare_part[c] * other_row[rare[c]] + other_part[c] * other_row[other[c]];
                const double inner = rare_part[b] * from_rare + other_part[b] * from_other;
                target[c] = std::max(0.0, points.lengths[b] + points.lengths[c] - 2.0 * inner);
            }
        }
    });
}

}  // namespace steelyard
