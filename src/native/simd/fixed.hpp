// Sums of rows of float and of 16-bit fixed-point numbers, accumulated in double.
#pragma once

#include "simd/loops_solver.hpp"
#include "vectors.hpp"

namespace steelyard::STEELYARD_LEVEL {

typedef float HalfVecF STEELYARD_VECTOR(STEELYARD_VECTOR_BYTES / 2);

STEELYARD_ALWAYS_INLINE static inline VecD widened(const float* p) {
    HalfVecF half;
    std::memcpy(&half, p, sizeof half);
    return STEELYARD_CONVERT(half, VecD);
}

// y[0 .. kFloats) += x. Written with intrinsics, because the compiler would emit a dozen shuffle instructions.
STEELYARD_ALWAYS_INLINE static inline void add_widened(VecF x, double* y) {
#if defined(__AVX512DQ__)
    const VecD first = (VecD)_mm512_cvtps_pd(_mm512_castps512_ps256((__m512)x));
    const VecD second = (VecD)_mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)x, 1));
#elif defined(__AVX2__)
    const VecD first = (VecD)_mm256_cvtps_pd(_mm256_castps256_ps128((__m256)x));
    const VecD second = (VecD)_mm256_cvtps_pd(_mm256_extractf128_ps((__m256)x, 1));
#else
    float values[kFloats];
    store(values, x);
    const VecD first = widened(values), second = widened(values + kDoubles);
#endif
    store(y, load(y) + first);
    store(y + kDoubles, load(y + kDoubles) + second);
}

typedef std::int16_t Shorts STEELYARD_VECTOR(STEELYARD_VECTOR_BYTES);
typedef std::int32_t Ints STEELYARD_VECTOR(STEELYARD_VECTOR_BYTES);
constexpr size_t kShorts = STEELYARD_VECTOR_BYTES / sizeof(std::int16_t);

STEELYARD_ALWAYS_INLINE static inline Shorts load(const std::int16_t* p) {
    Shorts v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

// Returns a[2 i] * b[2 i] + a[2 i + 1] * b[2 i + 1] for each i.
STEELYARD_ALWAYS_INLINE static inline Ints add_products(Shorts a, Shorts b) {
#if defined(__AVX512BW__)
    return (Ints)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return (Ints)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    Ints sums;
    for (size_t i = 0; i < kFloats; ++i) sums[i] = a[2 * i] * b[2 * i] + a[2 * i + 1] * b[2 * i + 1];
    return sums;
#endif
}

// Interleaves the lanes First to First + 3 of every group of eight lanes of a and b.
template <size_t First>
constexpr size_t interleaved_from(size_t lane) {
    return lane / 8 * 8 + First + lane % 8 / 2 + lane % 2 * kShorts;
}
template <size_t First>
STEELYARD_ALWAYS_INLINE static inline Shorts interleaved(Shorts a, Shorts b) {
    return shuffled<interleaved_from<First>>(a, b);
}

// Restores the original order of the results computed from interleaved<0> and interleaved<4>, starting at lane First.
template <size_t First>
constexpr size_t in_order_from(size_t lane) {
    const size_t four = (First + lane) / 4;
    return four / 2 * 4 + lane % 4 + four % 2 * kFloats;
}
template <size_t First>
STEELYARD_ALWAYS_INLINE static inline VecF in_order(VecF low, VecF high) {
    return shuffled<in_order_from<First>>(low, high);
}

static void add_fixed16(const FixedWeights& weights, const std::int16_t* const* x, double* y, size_t n) {
    constexpr size_t pairs = kFixedRows / 2;
    Shorts parts[pairs];
    VecF scales[pairs];
    for (size_t p = 0; p < pairs; ++p) {
        for (size_t lane = 0; lane < kShorts; ++lane) parts[p][lane] = weights.parts[2 * p + lane % 2];
        scales[p] = broadcast(weights.scales[p]);
    }
    size_t i = 0;
    for (; i + kShorts <= n; i += kShorts) {
        VecF low = broadcast(weights.shift), high = low;
        for (size_t p = 0; p < pairs; ++p) {
            const Shorts a = load(x[2 * p] + i), b = load(x[2 * p + 1] + i);
            low += scales[p] * STEELYARD_CONVERT(add_products(interleaved<0>(a, b), parts[p]), VecF);
            high += scales[p] * STEELYARD_CONVERT(add_products(interleaved<4>(a, b), parts[p]), VecF);
        }
        add_widened(in_order<0>(low, high), y + i);
        add_widened(in_order<kFloats>(low, high), y + i + kFloats);
    }
    for (; i < n; ++i) {
        float sum = weights.shift;
        for (size_t k = 0; k < kFixedRows; k += 2) {
            const int products = weights.parts[k] * x[k][i] + weights.parts[k + 1] * x[k + 1][i];
            sum += weights.scales[k / 2] * static_cast<float>(products);
        }
        y[i] += static_cast<double>(sum);
    }
}

static void to_fixed(const double* x, std::int16_t* fixed, size_t n) {
    // Adding this constant rounds a double to an integer, which is then in the low bits.
    constexpr double round_to_int = 0x1.8p52;
    for (size_t i = 0; i < n; ++i) {
        const double shifted = (x[i] - 0.5) * kFixedScale + round_to_int;
        std::int64_t bits;
        std::memcpy(&bits, &shifted, sizeof bits);
        fixed[i] = static_cast<std::int16_t>(bits);
    }
}

static void from_fixed(const std::int16_t* fixed, float* x, size_t n) {
    constexpr auto unit = static_cast<float>(1.0 / kFixedScale);
    for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(fixed[i]) * unit + 0.5F;
}

}  // namespace steelyard::STEELYARD_LEVEL
