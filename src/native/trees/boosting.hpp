// Boosted trees over a few thousand rows, for one moment of a stream: grown anew from the rows alone, fast.
//
// Columns are cut into at most 64 bins. Gradients and curvatures of the logistic loss are rounded to whole numbers, so
// their sums over any rows are exact and the difference of two sums is the sum over the others; all other arithmetic is
// a fixed order of IEEE additions, products and quotients. So the same rows give the same trees, bit by bit, on any
// machine and at any instruction level.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/rows.hpp"

namespace steelyard {

struct BoostSettings {
    std::size_t n_trees;     // for each plane
    std::size_t n_leaves;    // of a tree at most
    double rate;             // of what a leaf would give, that it gives
    double ridge;            // added to the curvature of a leaf, in rows
    std::size_t least_rows;  // on both sides of a split
    std::size_t n_columns;   // that a tree looks at, at most
    std::uint64_t seed;      // decides which, if there are more
};

// Trees one after the other. An inner node sends rows with x[feature] <= number to node `left`, others to the one
// behind it; a leaf has feature -1 and gives `number`.
struct Forest {
    std::vector<std::int32_t> feature;
    std::vector<std::int32_t> left;
    std::vector<double> number;
    std::vector<std::int32_t> roots;  // of the trees of the first plane, then of the next one
};

// For two classes one plane, whose positive side is class 1, otherwise one a class; every class counts alike, its rows
// by their weights. `codes` are below `n_classes`, all of which have rows; there are at most 65,535 rows, all finite.
// Throws what poll_interrupt throws.
Forest grow_forest(Rows<double> X, std::span<const std::int64_t> codes, std::span<const double> weights,
                   std::size_t n_classes, const BoostSettings& settings);

// Sums of the trees' answers: out has `n_planes` columns. The trees must be those of `grow_forest`, see `is_sound`.
void forest_scores(Rows<double> X, const Forest& forest, std::size_t n_planes, double* out);

// Whether every walk through the trees stays within them and comes to an end, for rows of so many columns.
bool is_sound(const Forest& forest, std::size_t n_planes, std::size_t n_features);

}  // namespace steelyard
