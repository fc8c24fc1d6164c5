// Normals of planes in the order in which the loops read them, and products of rows with them.
#pragma once

#include <cstddef>
#include <span>

#include "common/rows.hpp"
#include "simd/loops_score.hpp"

namespace steelyard {

class PackedPlanes {
  public:
    // `normals` holds n_planes of them, n_features numbers each.
    PackedPlanes(std::span<const double> normals, std::size_t n_planes, std::size_t n_features);

    // Numbers from one row of products to the next.
    std::size_t stride() const { return n_planes_ == 1 ? 1 : n_panels_ * loops_.width; }

    // out[i * stride() + p] = row i times normal p.
    template <class T>
    void products(Rows<T> rows, double* out) const;

  private:
    const ScoreLoops& loops_;
    std::size_t n_planes_, n_features_, n_panels_ = 1;
    AlignedVector<double> numbers_;
};

}  // namespace steelyard
