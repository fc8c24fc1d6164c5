// Wrappers of compiler extensions that GCC, clang and clang-cl share. No other file uses an extension by its name.
//
// The only exception are the operators of vector types (v + w, v < w ? v : w, v[lane]), which the SIMD loops use.
// Microsoft's own compiler has neither vector types nor 128-bit integers and cannot compile this library.
// The functions are static, because files that include this header are compiled for different instruction sets.
#pragma once

#include <cstdint>

#if !defined(__GNUC__)
#error "steelyard needs GCC or clang (on Windows: MinGW-w64 or clang-cl)"
#endif

// The loops of a SIMD level use Intel's intrinsics. immintrin.h takes half a second to compile; emmintrin.h is SSE2
// only.
#if defined(STEELYARD_LEVEL) && defined(__AVX2__)
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // false positive in a header of GCC
#endif
#include <immintrin.h>
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#elif defined(STEELYARD_LEVEL) && defined(__SSE2__)
#include <emmintrin.h>
#endif

#define STEELYARD_ALWAYS_INLINE [[gnu::always_inline]]
#define STEELYARD_NEVER_INLINE [[gnu::noinline]]
#define STEELYARD_INLINE_LAMBDA __attribute__((always_inline))  // [[...]] is not allowed at this position

// Attributes of functions that may use more instructions than the rest of their file.
#if defined(__x86_64__)
#define STEELYARD_TARGET_AVX2 [[gnu::target("avx2")]]
#define STEELYARD_TARGET_AVX512 [[gnu::target("avx2,avx512f,avx512dq,avx512vl")]]
#endif

// typedef double Vec STEELYARD_VECTOR(32); declares a vector of 32 bytes.
#define STEELYARD_VECTOR(bytes) __attribute__((vector_size(bytes)))
#define STEELYARD_CONVERT(vector, Type) __builtin_convertvector(vector, Type)
// Selects lanes of the concatenation of a and b by constant positions.
#if __has_builtin(__builtin_shufflevector)
#define STEELYARD_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else  // GCC before 12
#define STEELYARD_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, decltype((a) < (b)){__VA_ARGS__})
#endif

#define STEELYARD_RESTRICT __restrict

// Optimization barrier: the compiler must compute the vector here, so it cannot fuse a product with a later sum.
// Expands to nothing for processors without fused multiply-add.
#if defined(__x86_64__) && defined(__FMA__)
#define STEELYARD_COMPUTE_HERE(vector) asm("" : "+v"(vector))
#elif defined(__aarch64__)
#define STEELYARD_COMPUTE_HERE(vector) asm("" : "+w"(vector))
#elif defined(__FP_FAST_FMA)
#define STEELYARD_COMPUTE_HERE(vector) asm("" : "+m"(vector))
#else
#define STEELYARD_COMPUTE_HERE(vector) static_cast<void>(0)
#endif

#define STEELYARD_PRAGMA(text) _Pragma(#text)
#define STEELYARD_UNROLL(times) STEELYARD_PRAGMA(GCC unroll times)  // written before a loop

namespace steelyard {

__extension__ typedef __int128 int128;
__extension__ typedef unsigned __int128 uint128;

// Mathematical functions as single instructions. The SIMD loops must not include headers of the standard library.
// From such headers, the linker could keep a template compiled for instructions that the processor does not have.
STEELYARD_ALWAYS_INLINE static inline double square_root(double x) { return __builtin_sqrt(x); }
STEELYARD_ALWAYS_INLINE static inline double round_down(double x) { return __builtin_floor(x); }
STEELYARD_ALWAYS_INLINE static inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
STEELYARD_ALWAYS_INLINE static inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
STEELYARD_ALWAYS_INLINE static inline int lowest_bit(std::uint64_t bits) { return __builtin_ctzll(bits); }
STEELYARD_ALWAYS_INLINE static inline int count_bits(std::uint64_t bits) { return __builtin_popcountll(bits); }

STEELYARD_ALWAYS_INLINE static inline void prefetch(const void* address) { __builtin_prefetch(address); }
STEELYARD_ALWAYS_INLINE static inline void prefetch_to_write(const void* address) { __builtin_prefetch(address, 1); }

#if defined(__x86_64__)
static inline bool processor_has_avx2() {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}
static inline bool processor_has_avx512() {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}
#endif

}  // namespace steelyard
