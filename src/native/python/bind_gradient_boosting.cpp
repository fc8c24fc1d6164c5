#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "tree_scorer.hpp"
#include "trees/binning.hpp"
#include "trees/gradient_boosting.hpp"

namespace steelyard::bind {

namespace {

template <class T>
using TreeArray = NumpyArray<T, 1>;

// The arrays of a TreeEnsemble in the order of its members.
using TreeArrays =
    std::tuple<TreeArray<std::int32_t>, TreeArray<std::int32_t>, TreeArray<double>, TreeArray<std::int32_t>,
               TreeArray<std::uint8_t>, TreeArray<std::int32_t>, TreeArray<std::int32_t>, TreeArray<std::int64_t>,
               TreeArray<std::uint64_t>, TreeArray<double>>;

void check_tree_labels(Array<const std::int64_t, 1> codes, Array<const double, 1> weights, std::size_t n_classes) {
    std::vector<bool> occurs(n_classes, false);
    for (const std::int64_t code : span(codes)) {
        require(code >= 0 && code < static_cast<std::int64_t>(n_classes),
                "fit_gradient_boosting: a code is out of range");
        occurs[static_cast<std::size_t>(code)] = true;
    }
    require(std::ranges::find(occurs, false) == occurs.end(), "fit_gradient_boosting: a class has no rows");
    for (const double weight : span(weights))
        require(weight >= 1e-200 && weight <= 1e200, "fit_gradient_boosting: a weight is not between 1e-200 and 1e200");
}

void check_tree_settings(const BoostingSettings& s) {
    const bool are_counts_valid = s.n_trees > 0 && s.max_leaves > 0 && s.max_columns > 0 && s.max_bins >= 2 &&
                                  s.max_bins <= kMaxBins && s.min_rows_per_leaf <= kMaxBoostingRows &&
                                  s.min_rows_per_category <= kMaxBoostingRows && s.n_threads > 0;
    const bool are_numbers_valid = std::isfinite(s.learning_rate) && s.l2_regularization > 0.0 &&
                                   std::isfinite(s.l2_regularization) && s.row_fraction > 0.0 &&
                                   s.category_smoothing > 0.0 && std::isfinite(s.category_smoothing) &&
                                   s.category_l2 >= 0.0 && std::isfinite(s.category_l2);
    require(are_counts_valid && are_numbers_valid, "fit_gradient_boosting: a setting is out of range");
}

TreeArrays fit_trees(Array<const double, 2> X, Array<const std::int64_t, 1> codes, Array<const double, 1> weights,
                     std::size_t n_classes, const std::optional<Array<const std::uint8_t, 1>>& is_category,
                     std::size_t n_trees, std::size_t max_leaves, double learning_rate, double l2_regularization,
                     std::size_t min_rows_per_leaf, std::size_t max_columns, std::uint64_t seed, double row_fraction,
                     std::size_t max_bins, bool balance_classes, bool start_from_prior, double category_smoothing,
                     double category_l2, std::size_t max_categories, std::size_t min_rows_per_category, bool pack_sums,
                     unsigned n_threads) {
    require(X.shape(0) == codes.size() && codes.size() == weights.size() &&
                (!is_category || is_category->size() == X.shape(1)),
            "fit_gradient_boosting: array shapes disagree");
    require(0 < codes.size() && codes.size() <= kMaxBoostingRows,
            "fit_gradient_boosting: there must be 1 to 16,777,215 rows");
    require(n_classes >= 2, "fit_gradient_boosting: there must be two classes or more");
    check_tree_labels(codes, weights, n_classes);
    const BoostingSettings settings{n_trees,
                                    max_leaves,
                                    learning_rate,
                                    l2_regularization,
                                    min_rows_per_leaf,
                                    max_columns,
                                    seed,
                                    row_fraction,
                                    max_bins,
                                    balance_classes,
                                    start_from_prior,
                                    category_smoothing,
                                    category_l2,
                                    max_categories,
                                    min_rows_per_category,
                                    pack_sums,
                                    n_threads};
    check_tree_settings(settings);
    TreeEnsemble trees;
    {
        nb::gil_scoped_release unlocked;
        const std::span<const std::uint8_t> categories =
            is_category ? span(*is_category) : std::span<const std::uint8_t>{};
        trees = fit_gradient_boosting(rows(X), span(codes), span(weights), n_classes, categories, settings);
    }
    return {array_of(trees.feature),      array_of(trees.left),         array_of(trees.value),
            array_of(trees.roots),        array_of(trees.missing_left), array_of(trees.rows),
            array_of(trees.category_set), array_of(trees.set_begin),    array_of(trees.set_words),
            array_of(trees.base_score)};
}

// Uses placement new, which nanobind requires for constructors that convert their arguments.
void make_trees(BoundTrees* self, Array<const std::int32_t, 1> feature, Array<const std::int32_t, 1> left,
                Array<const double, 1> value, Array<const std::int32_t, 1> roots,
                Array<const std::uint8_t, 1> missing_left, Array<const std::int32_t, 1> n_rows,
                Array<const std::int32_t, 1> category_set, Array<const std::int64_t, 1> set_begin,
                Array<const std::uint64_t, 1> set_words, Array<const double, 1> base_score, std::size_t n_features) {
    new (self) BoundTrees(
        {vector_of(feature), vector_of(left), vector_of(value), vector_of(roots), vector_of(missing_left),
         vector_of(n_rows), vector_of(category_set), vector_of(set_begin), vector_of(set_words), vector_of(base_score)},
        n_features);
}

}  // namespace

void bind_gradient_boosting(nb::module_& m) {
    m.def("fit_gradient_boosting", &fit_trees, "X"_a.noconvert(), "codes"_a.noconvert(), "weights"_a.noconvert(),
          "n_classes"_a, "is_category"_a.noconvert().none() = nb::none(), nb::kw_only(), "n_trees"_a, "max_leaves"_a,
          "learning_rate"_a, "l2_regularization"_a, "min_rows_per_leaf"_a, "max_columns"_a, "seed"_a,
          "row_fraction"_a = 1.0, "max_bins"_a = 64, "balance_classes"_a = true, "start_from_prior"_a = false,
          "category_smoothing"_a = 10.0, "category_l2"_a = 10.0, "max_categories"_a = 32,
          "min_rows_per_category"_a = 10, "pack_sums"_a = false, "n_threads"_a = 1,
          "Fit gradient-boosted trees with the logistic loss; return the arrays of a TreeEnsemble.");
    nb::class_<BoundTrees>(m, "TreeEnsemble", "Decision trees whose scores are added up.")
        .def("__init__", &make_trees, "feature"_a.noconvert(), "left"_a.noconvert(), "value"_a.noconvert(),
             "roots"_a.noconvert(), "missing_left"_a.noconvert(), "rows"_a.noconvert(), "category_set"_a.noconvert(),
             "set_begin"_a.noconvert(), "set_words"_a.noconvert(), "base_score"_a.noconvert(), "n_features"_a)
        .def("scores", &BoundTrees::scores, "X"_a.noconvert(), "n_threads"_a = 1,
             "Return the sums of the trees' scores, one column per output.")
        .def("contributions", &BoundTrees::contributions, "X"_a.noconvert(), "n_threads"_a = 1,
             "Return SHAP values with the shape (n_rows, n_outputs, n_features + 1); the last column is the expected "
             "score.");
}

}  // namespace steelyard::bind
