// PackedPlanes: normals of planes in the memory order of the SIMD loops, and products of rows with these normals.
#pragma once

#include <cstddef>
#include <span>

#include "common/rows.hpp"
#include "simd/loops_score.hpp"

namespace steelyard {

class PackedPlanes {
  public:
    // `normals` has n_planes rows of n_features numbers.
    PackedPlanes(std::span<const double> normals, std::size_t n_planes, std::size_t n_features);

    // Returns the number of doubles from one row of products to the next.
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
