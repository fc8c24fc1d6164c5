#include <nanobind/stl/pair.h>

#include <algorithm>
#include <utility>

#include "arrays.hpp"
#include "metrics/conformal.hpp"

namespace steelyard::bind {

namespace {

std::pair<NumpyArray<double, 3>, NumpyArray<double, 2>> bound_p_values(Array<const double, 2> X,
                                                                       Array<const double, 2> edges,
                                                                       Array<const double, 2> counts,
                                                                       Array<const double, 3> uniform) {
    const std::size_t n_rows = X.shape(0), n_columns = X.shape(1), n_bins = counts.shape(1);
    require(edges.shape(0) == n_columns && counts.shape(0) == n_columns && n_bins > 0 && n_bins % 2 == 0 &&
                edges.shape(1) + 1 == n_bins && uniform.shape(0) == 2 && uniform.shape(1) == n_rows &&
                uniform.shape(2) == n_columns,
            "conformal_p_values: array shapes disagree");
    auto p = zeros<double, 3>({2, n_rows, n_columns});
    auto after = zeros<double, 2>({n_columns, n_bins});
    std::copy_n(counts.data(), counts.size(), after.data());
    nb::gil_scoped_release unlocked;
    conformal_p_values(rows(X), {edges.data(), after.data(), n_bins}, uniform.data(), p.data());
    return {p, after};
}

}  // namespace

void bind_conformal(nb::module_& m) {
    m.def(
        "conformal_p_values", &bound_p_values, "X"_a.noconvert(), "edges"_a.noconvert(), "counts"_a.noconvert(),
        "uniform"_a.noconvert(),
        "Return smoothed p-values of the bins of new rows and of the distances of these bins from the middle, and the "
        "new counts.");
}

}  // namespace steelyard::bind
