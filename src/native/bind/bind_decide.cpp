#include <nanobind/stl/pair.h>

#include <cmath>
#include <cstdint>
#include <utility>

#include "arrays.hpp"
#include "steelyard/gram.hpp"

namespace steelyard::bind {

// From scores to classes in one pass: the only thing left between a matrix product and its labels.
void bind_decide(nb::module_& m) {
    m.def(
        "decide",
        [](Array<const double, 2> scores, Array<const double, 1> intercept) {
            const std::size_t n = scores.shape(0), n_planes = scores.shape(1);
            if (intercept.size() != n_planes || n_planes == 0) throw nb::value_error("decide: array shapes disagree");
            auto winners = zeros<std::int64_t, 1>({n});
            const double* row = scores.data();
            const double* shift = intercept.data();
            nb::gil_scoped_release unlocked;
            const bool finite = std::isfinite(largest_magnitude(std::span<const double>(row, n * n_planes)));
            for (std::size_t i = 0; i < n; ++i, row += n_planes) {
                double best = row[0] + shift[0];
                std::int64_t winner = n_planes == 1 ? best > 0.0 : 0;
                for (std::size_t p = 1; p < n_planes; ++p) {
                    const double score = row[p] + shift[p];
                    winner = score > best ? static_cast<std::int64_t>(p) : winner;
                    best = score > best ? score : best;
                }
                winners.data()[i] = winner;
            }
            return std::pair(winners, finite);
        },
        "scores"_a.noconvert(), "intercept"_a.noconvert(),
        "The winning plane of each row of scores + intercept (one plane: 1 if positive, else 0), and whether all "
        "scores are finite.");
}

}  // namespace steelyard::bind
