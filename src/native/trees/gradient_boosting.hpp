// Histogram gradient boosting of decision trees for the logistic loss.
//
// Gradients and hessians are rounded to integers, so their sums are exact in any order.
// The histogram of a child is the difference of the histograms of its parent and its sibling.
// All other arithmetic is a fixed sequence of IEEE operations.
// The same rows give bit-identical trees on every machine, at every SIMD level, with any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/rows.hpp"
#include "trees/tree_ensemble.hpp"

namespace steelyard {

constexpr std::size_t kMaxBoostingRows = (std::size_t{1} << 24) - 1;

struct BoostingSettings {
    std::size_t n_trees;  // number of trees per output
    std::size_t max_leaves;
    double learning_rate;
    double l2_regularization;  // added to the sum of hessians of a leaf
    std::size_t min_rows_per_leaf;
    std::size_t max_columns;  // maximum number of randomly drawn columns per tree
    std::uint64_t seed;
    double row_fraction = 1.0;  // probability that a row is sampled for a tree
    std::size_t max_bins = 64;  // maximum number of bins, at most kMaxBins
    // Scale weights so that the positive and the negative rows of an output have the same total weight.
    bool balance_classes = true;
    bool start_from_prior = false;     // use the log-odds of the weighted class shares as base score instead of 0
    double category_smoothing = 10.0;  // added to the hessian when categories are sorted by gradient / hessian
    double category_l2 = 10.0;         // added to l2_regularization in the gain of a category split
    // Maximum size of a set of categories that is tried as the left or the right child of a split.
    std::size_t max_categories = 32;
    std::size_t min_rows_per_category = 10;  // categories with fewer rows in a leaf are treated as missing in this leaf
    // Round gradients to fewer bits, at random, so that sums fit into one word. This is faster and hardly less
    // accurate.
    bool pack_sums = false;
    unsigned n_threads = 1;
};

// Fits gradient-boosted trees.
// Two classes have one output, whose positive class is 1. More classes have one output each (one-vs-rest).
// Class codes are below `n_classes`, and all classes occur. The maximum is kMaxBoostingRows rows. NaN means missing.
// `is_category` has one entry per column, or is empty. Throws the exceptions of poll_interrupt().
//
// A numeric split sends missing values to the child with which the gain is larger.
// If no value of the leaf is missing, missing values go to the child with more rows, or left if both are equal.
// A category split sends missing values and categories that are rare in the leaf to the right.
// If a leaf has no such rows, the right child is the one with more rows.
TreeEnsemble fit_gradient_boosting(Rows<double> X, std::span<const std::int64_t> codes, std::span<const double> weights,
                                   std::size_t n_classes, std::span<const std::uint8_t> is_category,
                                   const BoostingSettings& settings);

}  // namespace steelyard
