// Dot product with the active SIMD level.
#pragma once

#include <cstddef>

#include "simd/simd.hpp"

namespace steelyard {

inline double dot(const double* a, const double* b, std::size_t n) { return loops().kernel.finish_f64.dot(a, b, n); }

}  // namespace steelyard
