#include "alignment/boundary.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "common/compiler.hpp"
#include "common/threads.hpp"
#include "simd/simd.hpp"

namespace steelyard {

namespace {

constexpr std::size_t kBoundaryTaskRows = 64;
// Two points coincide if their squared distance is below this multiple of their squared lengths (rounding error).
constexpr double kCoincide = 1e-10;

// Calls body(begin, end) for consecutive blocks of rows.
template <class Body>
void for_runs(std::size_t n_rows, unsigned n_threads, Body&& body) {
    parallel_for((n_rows + kBoundaryTaskRows - 1) / kBoundaryTaskRows, n_threads, [&](std::size_t task) {
        body(task * kBoundaryTaskRows, std::min(n_rows, (task + 1) * kBoundaryTaskRows));
    });
}

// Calls body(begin, end) for blocks of columns that stay in the L1 cache while all rows are read.
template <class Body>
void for_columns(std::size_t n_columns, unsigned n_threads, Body&& body) {
    constexpr std::size_t width = 512;
    parallel_for((n_columns + width - 1) / width, n_threads,
                 [&](std::size_t task) { body(task * width, std::min(n_columns, (task + 1) * width)); });
}

}  // namespace

void scaled_part(const KernelView& view, std::span<const std::int64_t> rows, double* out, unsigned n_threads) {
    const std::size_t m = rows.size();
    for_runs(m, n_threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t r = begin; r < end; ++r) {
            const double* row = view.K + static_cast<std::size_t>(rows[r]) * view.n_reference;
            const double factor = view.row_factor[rows[r]];
            double* target = out + r * m;
            // Both factors are multiplied first: a * b equals b * a exactly, so the result is exactly symmetric.
            if (m == view.n_reference)
                for (std::size_t c = 0; c < m; ++c) target[c] = (factor * view.row_factor[c]) * row[c];
            else
                for (std::size_t c = 0; c < m; ++c) target[c] = (factor * view.row_factor[rows[c]]) * row[rows[c]];
        }
    });
}

void weighted_rows(const KernelView& view, std::span<const std::int64_t> rows, const double* coefficients, double* out,
                   unsigned n_threads) {
    const std::size_t n = view.n_reference;
    const SolverLoops& solver = loops().solver;
    for_columns(n, n_threads, [&](std::size_t begin, std::size_t end) {
        std::fill(out + begin, out + end, 0.0);
        const auto part = [&](std::size_t r) { return view.K + static_cast<std::size_t>(rows[r]) * n + begin; };
        std::size_t r = 0;
        for (; r + 4 <= rows.size(); r += 4) {
            const double* parts[4] = {part(r), part(r + 1), part(r + 2), part(r + 3)};
            solver.axpy4(coefficients + r, parts, out + begin, end - begin);
        }
        for (; r < rows.size(); ++r) solver.axpy(coefficients[r], part(r), out + begin, end - begin);
    });
}

std::size_t find_asymmetry(const double* K, std::size_t n, double tolerance, unsigned n_threads) {
    // Blocks are square, so both triangles are read along rows.
    // The next block is prefetched explicitly, because the hardware does not prefetch short segments of many rows.
    constexpr std::size_t side = 64, line = 8;
    std::vector<std::size_t> found((n + side - 1) / side, n * n);
    parallel_for(found.size(), n_threads, [&](std::size_t block) {
        const std::size_t begin = block * side, end = std::min(n, begin + side);
        for (std::size_t column = 0; column < end && found[block] == n * n; column += side) {
            const std::size_t last = std::min(column + side, n), next = std::min(last + side, n);
            for (std::size_t i = begin; i < end; ++i)
                for (std::size_t j = last; j < next; j += line) prefetch(K + i * n + j);
            for (std::size_t j = last; j < next; ++j)
                for (std::size_t i = begin; i < end; i += line) prefetch(K + j * n + i);
            const auto agrees = [&](std::size_t i, std::size_t j) {
                return std::abs(K[i * n + j] - K[j * n + i]) <= tolerance;  // false if the difference is not finite
            };
            bool all_agree = true;
            for (std::size_t i = begin; i < end; ++i)
                for (std::size_t j = column; j < std::min(last, i + 1); ++j) all_agree &= agrees(i, j);
            if (all_agree) continue;
            for (std::size_t i = begin; i < end; ++i)
                for (std::size_t j = column; j < std::min(last, i + 1); ++j)
                    if (!agrees(i, j)) found[block] = i * n + j;
        }
    });
    for (const std::size_t entry : found)
        if (entry != n * n) return entry;
    return n * n;
}

namespace {

// Gaussians centred at the boundary points. Holds the terms of each Gaussian that do not depend on the row x.
struct Bumps {
    std::vector<double> rare_part, other_part, inverse;

    Bumps(const KernelView& view, const BoundaryPoints& points, const double* widths)
        : rare_part(points.rare.size()), other_part(points.rare.size()), inverse(points.rare.size()) {
        for (std::size_t b = 0; b < inverse.size(); ++b) {
            rare_part[b] = 2.0 * (1.0 - points.beta) * view.reference_factor[points.rare[b]];
            other_part[b] = 2.0 * points.beta * view.reference_factor[points.other[b]];
            inverse[b] = 1.0 / widths[b];
        }
    }
};

}  // namespace

void largest_exponents(const KernelView& view, const double* self, const BoundaryPoints& points, const double* widths,
                       double* out, unsigned n_threads) {
    const Bumps bumps(view, points, widths);
    const std::size_t n = points.rare.size(), ld = view.n_reference;
    const auto exponent = [&](std::size_t x, std::size_t b, double rare_value, double other_value) {
        const double products = bumps.rare_part[b] * rare_value + bumps.other_part[b] * other_value;
        const double squared = self[x] + points.lengths[b] - view.row_factor[x] * products;
        return -(squared > 0.0 ? squared : 0.0) * bumps.inverse[b];
    };
    std::fill_n(out, view.n_rows, -std::numeric_limits<double>::infinity());
    if (!view.symmetric) {
        for_runs(view.n_rows, n_threads, [&](std::size_t begin, std::size_t end) {
            for (std::size_t x = begin; x < end; ++x) {
                const double* row = view.K + x * ld;
                for (std::size_t b = 0; b < n; ++b)
                    out[x] = std::max(out[x], exponent(x, b, row[points.rare[b]], row[points.other[b]]));
            }
        });
        return;
    }
    // K is symmetric, so its rows are read instead of its columns: the values of a row are adjacent in memory.
    for_columns(view.n_rows, n_threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t b = 0; b < n; ++b) {
            const BumpRows bump{view.K + static_cast<std::size_t>(points.rare[b]) * ld + begin,
                                view.K + static_cast<std::size_t>(points.other[b]) * ld + begin,
                                bumps.rare_part[b],
                                bumps.other_part[b],
                                points.lengths[b],
                                bumps.inverse[b]};
            loops().boundary.raise(bump, self + begin, view.row_factor + begin, out + begin, end - begin);
        }
    });
}

namespace {

// Squared distances from one boundary point to all boundary points. The rows of the view are the reference rows.
class PointDistances {
  public:
    PointDistances(const KernelView& view, const BoundaryPoints& points)
        : view_(view), points_(points), rare_part_(points.rare.size()), other_part_(points.rare.size()) {
        for (std::size_t b = 0; b < size(); ++b) {
            rare_part_[b] = (1.0 - points.beta) * view.reference_factor[points.rare[b]];
            other_part_[b] = points.beta * view.reference_factor[points.other[b]];
        }
    }

    std::size_t size() const { return rare_part_.size(); }

    void from(std::size_t b, double* out) const {
        const double* rare_row = view_.K + static_cast<std::size_t>(points_.rare[b]) * view_.n_reference;
        const double* other_row = view_.K + static_cast<std::size_t>(points_.other[b]) * view_.n_reference;
        const PointParts all{points_.rare.data(), points_.other.data(), rare_part_.data(), other_part_.data(), size()};
        loops().boundary.products(all, rare_row, rare_part_[b], other_row, other_part_[b], out);
        for (std::size_t c = 0; c < size(); ++c)
            out[c] = std::max(0.0, points_.lengths[b] + points_.lengths[c] - 2.0 * out[c]);
    }

  private:
    const KernelView& view_;
    const BoundaryPoints& points_;
    std::vector<double> rare_part_, other_part_;
};

}  // namespace

void mean_near_distances(const KernelView& view, const BoundaryPoints& points, double limit, std::size_t max_count,
                         double* out, unsigned n_threads) {
    const PointDistances distances(view, points);
    const std::size_t n = distances.size();
    for_runs(n, n_threads, [&](std::size_t begin, std::size_t end) {
        std::vector<double> squared(n);
        for (std::size_t b = begin; b < end; ++b) {
            distances.from(b, squared.data());
            std::size_t n_near = 0;
            double nearest = std::numeric_limits<double>::infinity();
            for (std::size_t c = 0; c < n; ++c) {
                if (squared[c] <= kCoincide * (points.lengths[b] + points.lengths[c])) continue;
                nearest = std::min(nearest, squared[c]);
                if (squared[c] < limit) squared[n_near++] = squared[c];
            }
            // If only a few values are needed, partial_sort is faster than nth_element, which partitions all values.
            if (max_count < n_near)
                std::partial_sort(squared.begin(), squared.begin() + max_count, squared.begin() + n_near);
            const std::size_t count = std::min(max_count, n_near);
            const double sum = std::accumulate(squared.begin(), squared.begin() + count, 0.0);
            out[b] = count ? sum / static_cast<double>(count) : std::isfinite(nearest) ? nearest : 0.0;
        }
    });
}

}  // namespace steelyard
