// Tree ensemble: arrays of all nodes, scoring, validation of arrays from files, and SHAP values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/rows.hpp"

namespace steelyard {

// Nodes of all trees. If `feature[i]` is -1, node i is a leaf with score `value[i]`.
// If `feature[i]` is not -1, node i is a split with the children `left[i]` and `left[i] + 1`.
// In a numeric split, `category_set[i]` is -1.
// In a numeric split, rows with x[feature] <= value go left. NaN goes left if `missing_left[i]` is true.
// In a category split, rows whose code is in the set go left.
// In a category split, all other rows go right, including NaN, negative and unknown codes.
struct TreeEnsemble {
    std::vector<std::int32_t> feature;
    std::vector<std::int32_t> left;
    std::vector<double> value;        // threshold of a numeric split, or score of a leaf
    std::vector<std::int32_t> roots;  // root nodes of all trees of the first output, then those of the next output
    std::vector<std::uint8_t> missing_left;
    std::vector<std::int32_t> rows;          // number of training rows that reached the node
    std::vector<std::int32_t> category_set;  // index of the set of a category split
    std::vector<std::int64_t> set_begin;   // index of the first word of each category set, and the end of the last set
    std::vector<std::uint64_t> set_words;  // bit b of word w says whether category 64 w + b of the set goes left
    std::vector<double> base_score;        // initial score of each output

    std::size_t n_outputs() const { return base_score.size(); }
    std::size_t n_trees() const { return roots.size() / base_score.size(); }  // number of trees of each output
};

// Returns whether all indices are valid and every path ends in a leaf, for rows of `n_features` columns.
bool is_sound(const TreeEnsemble& trees, std::size_t n_features);

// Maximum depth of trees for SHAP values, because the memory grows with the square of the depth.
constexpr std::int32_t kMaxContributionDepth = 500;

// A validated tree ensemble in a memory layout for fast scoring.
class TreeScorer {
  public:
    // `trees` must pass is_sound().
    explicit TreeScorer(TreeEnsemble trees);

    const TreeEnsemble& trees() const { return trees_; }
    std::int32_t max_depth() const { return max_depth_; }

    // Writes the base score plus the scores of all trees, added in tree order. `out` has one column per output.
    void score(Rows<double> X, double* out, unsigned n_threads = 1) const;

    // Writes path-dependent SHAP values (Lundberg, Erion and Lee 2018).
    // `out` has the shape (n_rows, n_outputs, n_features + 1).
    // The last column is the expected score over the training rows. All columns add up to the score.
    // The ensemble must have `rows` and a depth of at most kMaxContributionDepth.
    void contributions(Rows<double> X, double* out, unsigned n_threads = 1) const;

  private:
    // Number of interleaved tree traversals. While one waits for memory, the others continue.
    static constexpr std::size_t kLanes = 8;

    struct Node {
        double threshold;            // threshold of a numeric split, or index of the set of a category split
        std::uint32_t feature_bits;  // feature << 2, bit 0: missing values go left, bit 1: category split
        std::int32_t left;           // left child; a leaf refers to itself, so that a traversal stays there
    };
    struct Tree {
        std::int32_t root;
        std::int32_t depth;
        bool has_categories;
    };

    std::int32_t child(std::int32_t node, const double* row) const;
    void walk(std::array<std::int32_t, kLanes>& at, const std::array<const double*, kLanes>& rows, std::int32_t depth,
              bool has_categories) const;
    void score_row(const double* row, double* out) const;
    void score_block(const double* X, std::size_t n_rows, std::size_t n_features, double* out) const;

    TreeEnsemble trees_;
    std::vector<Node> nodes_;
    std::vector<Tree> roots_;
    std::int32_t max_depth_ = 0;
};

}  // namespace steelyard
