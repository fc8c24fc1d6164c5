// Functions exp and tanh of vectors of double and float, at the vector width of the SIMD level.
#pragma once

#include "vectors.hpp"

namespace steelyard::STEELYARD_LEVEL {

// Constants of the functions for each floating-point type.
template <class T>
struct Lane;

template <>
struct Lane<double> {
    typedef VecD Vec;
    typedef std::int64_t Int;
    typedef Int IntVec STEELYARD_VECTOR(STEELYARD_VECTOR_BYTES);
    static constexpr size_t count = kDoubles;
    static constexpr int mantissa_bits = 52, bias = 1023;
    // Adding this constant rounds a number to an integer, which is then in the low bits.
    static constexpr double round_to_int = 0x1.8p52;
    // ln2_high has trailing zero bits, so the product n * ln2_high is exact.
    static constexpr double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
    static constexpr double exp_is_zero = -746.0;  // below this, exp(x) is less than half of the smallest subnormal
    static constexpr double tanh_is_one = 40.0;    // from this value on, tanh(x) rounds to 1
    static constexpr int denormal_shift = 54;      // shifts the smallest scale to a normal number
    static constexpr int terms = 13;               // number of terms of the Taylor series on |r| <= ln2 / 2
};

template <>
struct Lane<float> {
    typedef VecF Vec;
    typedef std::int32_t Int;
    typedef Int IntVec STEELYARD_VECTOR(STEELYARD_VECTOR_BYTES);
    static constexpr size_t count = kFloats;
    static constexpr int mantissa_bits = 23, bias = 127;
    static constexpr float round_to_int = 0x1.8p23f;
    static constexpr float ln2_high = 0x1.63p-1f, ln2_low = -0x1.bd0106p-13f;
    static constexpr float exp_is_zero = -105.0f;
    static constexpr float tanh_is_one = 20.0f;
    static constexpr int denormal_shift = 26;
    static constexpr int terms = 7;
};

template <class T>
using Vec = typename Lane<T>::Vec;

template <class T>
constexpr T inverse_factorial(int k) {
    double factorial = 1.0;
    for (int i = 2; i <= k; ++i) factorial *= i;
    return static_cast<T>(1.0 / factorial);
}

template <class T>
STEELYARD_ALWAYS_INLINE static inline Vec<T> absolute(Vec<T> x) {
    typedef typename Lane<T>::IntVec IntVec;
    typedef typename Lane<T>::Int Int;
    constexpr Int all_but_sign = ~(Int{1} << (8 * sizeof(T) - 1));
    return (Vec<T>)((IntVec)x & (all_but_sign - IntVec{}));
}

// Argument reduction x = n ln2 + r with |r| <= ln2 / 2, so that exp(x) = 2^n (1 + expm1_r).
template <class T>
struct ReducedExp {
    typename Lane<T>::IntVec n;
    Vec<T> expm1_r;

    // Returns 2^(n + shift).
    STEELYARD_ALWAYS_INLINE Vec<T> scale(int shift) const {
        return (Vec<T>)((n + (Lane<T>::bias + shift)) << Lane<T>::mantissa_bits);
    }
};

template <class T>
STEELYARD_ALWAYS_INLINE static inline ReducedExp<T> reduce_exp(Vec<T> x) {
    typedef Lane<T> L;
    typedef typename L::IntVec IntVec;
    const Vec<T> magic = broadcast(L::round_to_int);
    const Vec<T> shifted = x * T(1.4426950408889634) + magic;
    const Vec<T> n = shifted - magic;
    const Vec<T> r = (x - n * L::ln2_high) - n * L::ln2_low;
    Vec<T> series = broadcast(inverse_factorial<T>(L::terms));
    STEELYARD_UNROLL(16)
    for (int k = L::terms - 1; k >= 2; --k) series = series * r + inverse_factorial<T>(k);
    return {(IntVec)shifted - (IntVec)magic, r + r * r * series};
}

// Returns exp(x) for x <= 0, exactly 1 at 0, including subnormal results down to 0. NaN stays NaN.
template <class T>
STEELYARD_ALWAYS_INLINE static inline Vec<T> exp_nonpositive(Vec<T> x) {
    typedef Lane<T> L;
    // Lanes whose result is zero skip the computation, because products that underflow are 100 times slower.
    const typename L::IntVec is_zero = x < broadcast(L::exp_is_zero);
    const ReducedExp<T> e = reduce_exp<T>(is_zero ? Vec<T>{} : x);
    const Vec<T> lifted = e.scale(L::denormal_shift);
    // The last product is exact unless the result is subnormal, so there is at most one rounding error.
    constexpr T lower = T(1) / static_cast<T>(std::int64_t{1} << L::denormal_shift);
    return is_zero ? Vec<T>{} : (lifted + lifted * e.expm1_r) * lower;
}

// Computes tanh(x) = -expm1(-2|x|) / (2 + expm1(-2|x|)) with the sign of x, without cancellation near 0.
template <class T>
STEELYARD_ALWAYS_INLINE static inline Vec<T> tanh(Vec<T> x) {
    typedef Lane<T> L;
    const Vec<T> largest = broadcast(L::tanh_is_one);
    const Vec<T> size = absolute<T>(x);
    const ReducedExp<T> e = reduce_exp<T>(T(-2) * (size > largest ? largest : size));
    const Vec<T> scale = e.scale(0);
    const Vec<T> expm1 = scale * e.expm1_r + (scale - T(1));
    const Vec<T> result = -expm1 / (T(2) + expm1);
    return x < Vec<T>{} ? -result : result;
}

}  // namespace steelyard::STEELYARD_LEVEL
