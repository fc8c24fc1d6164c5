#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "trees.hpp"

namespace steelyard::bind {

namespace {

// What crosses the border: feature, left, number, roots.
using ForestArrays = std::tuple<NumpyArray<std::int32_t, 1>, NumpyArray<std::int32_t, 1>, NumpyArray<double, 1>,
                                NumpyArray<std::int32_t, 1>>;

ForestArrays grow(Array<const double, 2> X, Array<const std::int64_t, 1> codes, Array<const double, 1> weights,
                  std::size_t n_classes, std::size_t n_trees, std::size_t n_leaves, double rate, double ridge,
                  std::size_t least_rows, std::size_t n_columns, std::uint64_t seed) {
    require(X.shape(0) == codes.size() && codes.size() == weights.size(), "grow_forest: array shapes disagree");
    require(0 < codes.size() && codes.size() < 65536, "grow_forest: there must be 1 to 65,535 rows");
    require(n_classes >= 2 && n_trees > 0 && n_leaves > 0 && n_columns > 0 && ridge > 0.0,
            "grow_forest: a setting is out of range");
    std::vector<bool> seen(n_classes, false);
    for (const std::int64_t code : span(codes)) {
        require(code >= 0 && code < static_cast<std::int64_t>(n_classes), "grow_forest: a code is out of range");
        seen[static_cast<std::size_t>(code)] = true;
    }
    require(std::ranges::find(seen, false) == seen.end(), "grow_forest: a class has no rows");
    for (const double weight : span(weights))
        require(weight > 0.0 && std::isfinite(weight), "grow_forest: a weight is not positive and finite");
    Forest forest;
    {
        nb::gil_scoped_release unlocked;
        forest = grow_forest(rows(X), span(codes), span(weights), n_classes,
                             {n_trees, n_leaves, rate, ridge, least_rows, n_columns, seed});
    }
    return {array_of(forest.feature), array_of(forest.left), array_of(forest.number), array_of(forest.roots)};
}

}  // namespace

void bind_boosting(nb::module_& m) {
    m.def("grow_forest", &grow, "X"_a.noconvert(), "codes"_a.noconvert(), "weights"_a.noconvert(), "n_classes"_a,
          nb::kw_only(), "n_trees"_a, "n_leaves"_a, "rate"_a, "ridge"_a, "least_rows"_a, "n_columns"_a, "seed"_a,
          "Boosted trees of the logistic loss, all classes counted alike: feature, left, number and roots.");
    nb::class_<Trees>(m, "Trees", "Trees that answer.")
        .def(nb::init<Array<const std::int32_t, 1>, Array<const std::int32_t, 1>, Array<const double, 1>,
                      Array<const std::int32_t, 1>, std::size_t, std::size_t>(),
             "feature"_a.noconvert(), "left"_a.noconvert(), "number"_a.noconvert(), "roots"_a.noconvert(), "n_planes"_a,
             "n_features"_a)
        .def("scores", &Trees::scores, "X"_a.noconvert(), "Sums of what the trees give, one column a plane.");
}

}  // namespace steelyard::bind
