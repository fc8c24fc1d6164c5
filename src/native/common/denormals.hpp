// What becomes of numbers below the smallest normal one.
#pragma once

namespace steelyard {

// While it lives, such numbers are kept, or count as zero in arithmetic and in comparisons of numbers. Narrow kernels
// have many of them, a product with one is a hundred times as slow as others, and to a sum of weights they are nothing.
// To change the mode costs some fifty cycles, and to look at it some too: once for many samples, not in each loop.
class Denormals {
  public:
#if defined(__SSE2__)
    explicit Denormals(bool kept) : before_(__builtin_ia32_stmxcsr()) {
        set(kept ? before_ & ~kAsZero : before_ | kAsZero);
    }
    ~Denormals() { set(before_); }

  private:
    static constexpr unsigned kAsZero = 0x8040;  // results, operands
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
