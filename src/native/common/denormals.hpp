// Treatment of denormal numbers.
#pragma once

namespace steelyard {

// RAII mode of the floating-point unit: denormal numbers are preserved, or treated as zero in arithmetic and
// comparisons. Narrow kernels produce many denormal numbers. A product with a denormal number is about 100 times
// slower, and it does not change a sum of weights. Changing the mode costs about 50 cycles, so it is changed once for
// many samples, not in each loop.
class Denormals {
  public:
#if defined(__SSE2__)
    explicit Denormals(bool kept) : before_(__builtin_ia32_stmxcsr()) {
        set(kept ? before_ & ~kAsZero : before_ | kAsZero);
    }
    ~Denormals() { set(before_); }

  private:
    static constexpr unsigned kAsZero = 0x8040;  // flush-to-zero (results) and denormals-are-zero (operands)
    static void set(unsigned mode) {
        if (mode != __builtin_ia32_stmxcsr()) __builtin_ia32_ldmxcsr(mode);
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
