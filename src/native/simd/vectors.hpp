// Vector types of one SIMD level. All code in files that a level includes must be in the namespace of this level.
// Code of a SIMD level must not instantiate std:: templates.
// The linker keeps only one copy of such a function, possibly the one compiled for AVX-512.
// Baseline code that calls this copy would crash on older processors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "common/compiler.hpp"
#include "common/numbers.hpp"

namespace steelyard::STEELYARD_LEVEL {

using std::size_t;

typedef double VecD STEELYARD_VECTOR(STEELYARD_VECTOR_BYTES);
typedef float VecF STEELYARD_VECTOR(STEELYARD_VECTOR_BYTES);
constexpr size_t kDoubles = STEELYARD_VECTOR_BYTES / sizeof(double);
constexpr size_t kFloats = STEELYARD_VECTOR_BYTES / sizeof(float);

STEELYARD_ALWAYS_INLINE static inline VecD load(const double* p) {
    VecD v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
STEELYARD_ALWAYS_INLINE static inline VecF load(const float* p) {
    VecF v;
    std::memcpy(&v, p, sizeof v);
    return v;
}
STEELYARD_ALWAYS_INLINE static inline void store(double* p, VecD v) { std::memcpy(p, &v, sizeof v); }
STEELYARD_ALWAYS_INLINE static inline void store(float* p, VecF v) { std::memcpy(p, &v, sizeof v); }
STEELYARD_ALWAYS_INLINE static inline VecD broadcast(double x) { return x - VecD{}; }
STEELYARD_ALWAYS_INLINE static inline VecF broadcast(float x) { return x - VecF{}; }
STEELYARD_ALWAYS_INLINE static inline VecD larger(VecD a, VecD b) { return a > b ? a : b; }
STEELYARD_ALWAYS_INLINE static inline double lane_sum(VecD v) {
    double total = 0.0;
    for (size_t lane = 0; lane < kDoubles; ++lane) total += v[lane];
    return total;
}
// Returns the lane numbers 0, 1, 2, ...
STEELYARD_ALWAYS_INLINE static inline VecD first_places() {
    VecD places;
    for (size_t lane = 0; lane < kDoubles; ++lane) places[lane] = static_cast<double>(lane);
    return places;
}
STEELYARD_ALWAYS_INLINE static inline double lane_least(VecD v) {
    double least = v[0];
    for (size_t lane = 1; lane < kDoubles; ++lane) least = v[lane] < least ? v[lane] : least;
    return least;
}

// Returns a vector whose lane l is lane From(l) of the concatenation of a and b.
// For constant lane indices, compilers emit one instruction.
template <size_t (*From)(size_t), class V, size_t... Lane>
STEELYARD_ALWAYS_INLINE static inline V shuffled_lanes(V a, V b, std::index_sequence<Lane...>) {
    return STEELYARD_SHUFFLE(a, b, static_cast<int>(From(Lane))...);
}
template <size_t (*From)(size_t), class V>
STEELYARD_ALWAYS_INLINE static inline V shuffled(V a, V b) {
    return shuffled_lanes<From>(a, b, std::make_index_sequence<sizeof(V) / sizeof(a[0])>());
}

// Optimization barrier: returns its argument and prevents the compiler from fusing a product with a sum.
STEELYARD_ALWAYS_INLINE static inline VecD rounded(VecD product) {
    STEELYARD_COMPUTE_HERE(product);
    return product;
}

// Returns a * b + c, rounded as in vector lanes: fused if the processor supports it.
STEELYARD_ALWAYS_INLINE static inline double multiply_add(double a, double b, double c) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__FP_FAST_FMA)
    return fused(a, b, c);
#else
    return a * b + c;
#endif
}

}  // namespace steelyard::STEELYARD_LEVEL
