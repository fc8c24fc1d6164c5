// RAII control of how the processor treats denormal numbers.
#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace steelyard {

// Mode of the floating-point unit: denormal numbers are preserved, or treated as zero.
// Narrow kernels produce many denormal numbers, and products with them are about 100 times slower.
// Treating denormal weights as zero does not change a sum of weights.
// A mode change costs about 50 cycles, so the mode is set once for many samples, not in each loop.
class Denormals {
  public:
#if defined(__SSE2__)
    explicit Denormals(bool kept) : before_(_mm_getcsr()) { set(kept ? before_ & ~kAsZero : before_ | kAsZero); }
    ~Denormals() { set(before_); }

  private:
    static constexpr unsigned kAsZero = 0x8040;  // flush-to-zero (results) and denormals-are-zero (operands)
    static void set(unsigned mode) {
        if (mode != _mm_getcsr()) _mm_setcsr(mode);
    }
    unsigned before_;
#else
    explicit Denormals(bool) {}
    ~Denormals() {}
#endif
  public:
    Denormals(const Denormals&) = delete;
    Denormals& operator=(const Denormals&) = delete;
};

}  // namespace steelyard
