// Conversion of NumPy arrays to Neighbors.
#pragma once

#include "arrays.hpp"
#include "kernels/neighbors.hpp"

namespace steelyard::bind {

// Returns Neighbors that reference the arrays. Throws an error if the arrays are inconsistent.
inline Neighbors checked_neighbors(const KernelSpec& spec, const Array<const double, 2>& vectors,
                                   const Array<const std::int64_t, 1>& places, std::size_t n_classes,
                                   std::size_t n_neighbors) {
    require(places.size() == vectors.shape(0) && vectors.shape(0) > 0 && n_neighbors > 0 && n_classes > 1 &&
                spec.kind != KernelKind::lookup,
            "neighbors: array shapes disagree");
    for (std::size_t i = 0; i < places.size(); ++i)
        require(places(i) >= 0 && places(i) < static_cast<std::int64_t>(n_classes), "neighbors: unknown class");
    return {spec, rows(vectors), places.data(), n_classes, n_neighbors};
}

}  // namespace steelyard::bind
