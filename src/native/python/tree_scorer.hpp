// Tree ensemble that is validated once, on construction from arrays.
#pragma once

#include "arrays.hpp"
#include "trees/tree_ensemble.hpp"

namespace steelyard::bind {

class BoundTrees {
  public:
    BoundTrees(TreeEnsemble trees, std::size_t n_features)
        : scorer_(validated(std::move(trees), n_features)), n_features_(n_features) {}

    NumpyArray<double, 2> scores(Array<const double, 2> X, unsigned n_threads) const {
        require(X.shape(1) == n_features_, "TreeEnsemble.scores: array shapes disagree");
        auto out = zeros<double, 2>({X.shape(0), scorer_.trees().n_outputs()});
        UnlockedIfLong unlocked(X.shape(0) * scorer_.trees().roots.size() *
                                static_cast<std::size_t>(scorer_.max_depth()));
        scorer_.score(rows(X), out.data(), n_threads);
        return out;
    }

    NumpyArray<double, 3> contributions(Array<const double, 2> X, unsigned n_threads) const {
        require(X.shape(1) == n_features_, "TreeEnsemble.contributions: array shapes disagree");
        require(!scorer_.trees().rows.empty(), "TreeEnsemble.contributions: the trees have no row counts");
        require(scorer_.max_depth() <= kMaxContributionDepth, "TreeEnsemble.contributions: the trees are too deep");
        auto out = zeros<double, 3>({X.shape(0), scorer_.trees().n_outputs(), n_features_ + 1});
        nb::gil_scoped_release unlocked;
        scorer_.contributions(rows(X), out.data(), n_threads);
        return out;
    }

    const TreeScorer& scorer() const { return scorer_; }
    std::size_t n_features() const { return n_features_; }

  private:
    static TreeEnsemble validated(TreeEnsemble trees, std::size_t n_features) {
        require(is_sound(trees, n_features), "TreeEnsemble: the arrays do not describe valid trees");
        return trees;
    }

    TreeScorer scorer_;
    std::size_t n_features_;
};

}  // namespace steelyard::bind
