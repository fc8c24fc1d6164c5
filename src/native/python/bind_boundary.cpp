#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include <optional>
#include <utility>
#include <vector>

#include "alignment/boundary.hpp"
#include "alignment/rough_svm.hpp"
#include "arrays.hpp"

namespace steelyard::bind {

namespace {

using Matrix = Array<const double, 2>;
using Vector = Array<const double, 1>;
using Positions = Array<const std::int64_t, 1>;

void require_shapes(bool agrees) { require(agrees, "kernel boundary: array shapes disagree"); }

// Throws if an index is out of range, because it would cause reads out of bounds.
void check_positions(const Positions& positions, std::size_t n) {
    for (const std::int64_t p : span(positions))
        if (p < 0 || static_cast<std::size_t>(p) >= n) throw nb::index_error("kernel boundary: row index out of range");
}

KernelView view(const Matrix& K, const Vector& row_factor, const Vector& reference_factor) {
    require_shapes(row_factor.size() == K.shape(0) && reference_factor.size() == K.shape(1));
    return {K.data(), K.shape(0), K.shape(1), row_factor.data(), reference_factor.data()};
}

BoundaryPoints points(const Positions& rare, const Positions& other, double beta, const Vector& lengths,
                      std::size_t n_reference) {
    require_shapes(rare.size() == other.size() && rare.size() == lengths.size());
    check_positions(rare, n_reference);
    check_positions(other, n_reference);
    return {span(rare), span(other), beta, lengths.data()};
}

}  // namespace

void bind_boundary(nb::module_& m) {
    m.def(
        "scaled_part",
        [](Matrix K, Vector factor, Positions rows, Array<double, 2> out, unsigned n_threads) {
            require_shapes(K.shape(0) == K.shape(1) && out.shape(0) == rows.size() && out.shape(1) == rows.size());
            check_positions(rows, K.shape(0));
            const KernelView current = view(K, factor, factor);
            nb::gil_scoped_release unlocked;
            scaled_part(current, span(rows), out.data(), n_threads);
        },
        "K"_a.noconvert(), "factor"_a.noconvert(), "rows"_a.noconvert(), "out"_a.noconvert(), "n_threads"_a = 1,
        "Fill out[r, c] with factor[rows[r]] * factor[rows[c]] * K[rows[r], rows[c]]. The rows must be ascending.");
    m.def(
        "largest_exponents",
        [](Matrix K, Vector row_factor, Vector reference_factor, Vector self, Positions rare, Positions other,
           double beta, Vector lengths, Vector widths, Array<double, 1> out, bool symmetric, unsigned n_threads) {
            KernelView current = view(K, row_factor, reference_factor);
            require_shapes(!symmetric || K.shape(0) == K.shape(1));
            current.symmetric = symmetric;
            const BoundaryPoints all = points(rare, other, beta, lengths, K.shape(1));
            require_shapes(self.size() == K.shape(0) && out.size() == K.shape(0) && widths.size() == rare.size());
            nb::gil_scoped_release unlocked;
            largest_exponents(current, self.data(), all, widths.data(), out.data(), n_threads);
        },
        "K"_a.noconvert(), "row_factor"_a.noconvert(), "reference_factor"_a.noconvert(), "self"_a.noconvert(),
        "rare"_a.noconvert(), "other"_a.noconvert(), "beta"_a, "lengths"_a.noconvert(), "widths"_a.noconvert(),
        "out"_a.noconvert(), "symmetric"_a = false, "n_threads"_a = 1,
        "Fill out[x] with the largest value of -(squared distance of row x to boundary point b) / widths[b] over all "
        "b.");
    m.def(
        "weighted_rows",
        [](Matrix K, Positions rows, Vector coefficients, Array<double, 1> out, unsigned n_threads) {
            require_shapes(coefficients.size() == rows.size() && out.size() == K.shape(1));
            check_positions(rows, K.shape(0));
            const KernelView all{K.data(), K.shape(0), K.shape(1), nullptr, nullptr};
            nb::gil_scoped_release unlocked;
            weighted_rows(all, span(rows), coefficients.data(), out.data(), n_threads);
        },
        "K"_a.noconvert(), "rows"_a.noconvert(), "coefficients"_a.noconvert(), "out"_a.noconvert(), "n_threads"_a = 1,
        "Fill out[x] with the sum of coefficients[r] * K[rows[r], x].");
    m.def(
        "solve_roughly",
        [](Matrix K, Vector signs, Matrix factors, Matrix bounds, Array<const bool, 2> working, Array<double, 2> z,
           Array<double, 2> scores, Array<double, 1> intercepts, double tolerance, double slack, unsigned n_threads) {
            const std::size_t n = signs.size(), n_machines = intercepts.size();
            require_shapes(K.shape(0) == n && K.shape(1) == n);
            for (const auto* shape :
                 {factors.shape_ptr(), bounds.shape_ptr(), working.shape_ptr(), z.shape_ptr(), scores.shape_ptr()})
                require_shapes(static_cast<std::size_t>(shape[0]) == n_machines &&
                               static_cast<std::size_t>(shape[1]) == n);
            std::vector<RoughMachine> machines;
            for (std::size_t m = 0; m < n_machines; ++m)
                machines.push_back({factors.data() + m * n, bounds.data() + m * n, working.data() + m * n,
                                    z.data() + m * n, scores.data() + m * n});
            {
                nb::gil_scoped_release unlocked;
                solve_roughly({K.data(), signs.data(), n}, machines.data(), n_machines, {tolerance, slack}, n_threads);
            }
            for (std::size_t m = 0; m < n_machines; ++m) intercepts.data()[m] = machines[m].intercept;
        },
        "K"_a.noconvert(), "signs"_a.noconvert(), "factors"_a.noconvert(), "bounds"_a.noconvert(),
        "working"_a.noconvert(), "z"_a.noconvert(), "scores"_a.noconvert(), "intercepts"_a.noconvert(), "tolerance"_a,
        "slack"_a, "n_threads"_a = 1,
        "Fill z and scores with the solution of one SVM for each row of factors, bounds and working.");
    m.def(
        "find_asymmetry",
        [](Matrix K, double tolerance, unsigned n_threads) -> std::optional<std::pair<std::size_t, std::size_t>> {
            require_shapes(K.shape(0) == K.shape(1));
            const std::size_t n = K.shape(0);
            std::size_t entry;
            {
                nb::gil_scoped_release unlocked;
                entry = find_asymmetry(K.data(), n, tolerance, n_threads);
            }
            if (entry == n * n) return std::nullopt;
            return std::pair(entry / n, entry % n);
        },
        "K"_a.noconvert(), "tolerance"_a, "n_threads"_a = 1,
        "Return the indices (i, j) of an entry that differs from K[j, i] by more than the tolerance or is not finite, "
        "or None.");
    m.def(
        "mean_near_distances",
        [](Matrix K, Vector factor, Positions rare, Positions other, double beta, Vector lengths, double limit,
           std::size_t max_count, Array<double, 1> out, unsigned n_threads) {
            require_shapes(K.shape(0) == K.shape(1) && out.size() == rare.size());
            const KernelView current = view(K, factor, factor);
            const BoundaryPoints all = points(rare, other, beta, lengths, K.shape(1));
            nb::gil_scoped_release unlocked;
            mean_near_distances(current, all, limit, max_count, out.data(), n_threads);
        },
        "K"_a.noconvert(), "factor"_a.noconvert(), "rare"_a.noconvert(), "other"_a.noconvert(), "beta"_a,
        "lengths"_a.noconvert(), "limit"_a, "max_count"_a, "out"_a.noconvert(), "n_threads"_a = 1,
        "Fill out[b] with the mean squared distance of boundary point b to its nearest other points within the limit "
        "(a squared distance).");
}

}  // namespace steelyard::bind
