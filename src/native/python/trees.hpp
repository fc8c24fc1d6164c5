// Trees that were looked through once and answer from then on.
#pragma once

#include "arrays.hpp"
#include "trees/boosting.hpp"

namespace steelyard::bind {

class Trees {
  public:
    Trees(Array<const std::int32_t, 1> feature, Array<const std::int32_t, 1> left, Array<const double, 1> number,
          Array<const std::int32_t, 1> roots, std::size_t n_planes, std::size_t n_features)
        : forest_{vector_of(feature), vector_of(left), vector_of(number), vector_of(roots)},
          n_planes_(n_planes),
          n_features_(n_features) {
        require(is_sound(forest_, n_planes, n_features), "Trees: these are no trees");
    }

    NumpyArray<double, 2> scores(Array<const double, 2> X) const {
        require(X.shape(1) == n_features_, "Trees.scores: array shapes disagree");
        auto out = zeros<double, 2>({X.shape(0), n_planes_});
        nb::gil_scoped_release unlocked;
        forest_scores(rows(X), forest_, n_planes_, out.data());
        return out;
    }

    const Forest& forest() const { return forest_; }
    std::size_t n_planes() const { return n_planes_; }
    std::size_t n_features() const { return n_features_; }

  private:
    Forest forest_;
    std::size_t n_planes_, n_features_;
};

}  // namespace steelyard::bind
