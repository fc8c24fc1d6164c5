// The hot loops of the online kernel learners: everything that is done once a sample and once a support vector. Sums of
// products are slow where there are denormal numbers (denormals.hpp); selection tells these apart in any mode.
#pragma once

#include <cstddef>
#include <cstdint>

namespace steelyard {

// Keys are written in groups of so many.
constexpr std::size_t kKeyPadding = 16;

// The integers that a number is compared as.
template <class Real>
struct KeyOf;
template <>
struct KeyOf<double> {
    using Type = std::int64_t;
};
template <>
struct KeyOf<float> {
    using Type = std::int32_t;
};

// Numbers of a cache line. Arrays can be read, and where it is said so written, up to the next multiple of it.
template <class Real>
constexpr std::size_t kLineOf = 64 / sizeof(Real);

// Which of the opposite support vectors a sample is to be set apart from. The arrays can be read, and `losses`
// written, up to the end of a line.
template <class Real>
struct ViolatorQuery {
    const Real* scores;        // g_i, unscaled
    const Real* similarities;  // k(x, s_i)
    std::size_t n;
    Real base, slope;                  // loss_i = base + slope * g_i
    std::size_t most;                  // how many may be taken
    Real* losses;                      // out: loss of each of the n, also where it is not positive
    typename KeyOf<Real>::Type* keys;  // room for n, rounded up to a multiple of kKeyPadding
    std::uint32_t* chosen;             // out: positions taken, ascending; room for n and kKeyPadding more
};

// Products of one row with two rows of weights, all of two sides that begin `apart` from each other. Numbers up to the
// end of a line are counted as well: zeros in the weights.
template <class Real>
struct TwoDots {
    const Real* weights[2];
    const Real* row;
    std::size_t counts[2], apart;
    Real products[2];  // out
};

template <class Real>
struct OnlineLoopsOf {
    // out[j] = values[index[j]]
    void (*gather)(const Real* values, const std::uint32_t* index, Real* out, std::size_t n);
    // Takes every i with loss_i > 0, or, if those are more than `most`, the `most` of them with the largest
    // similarity; of equals the lower positions. Returns how many.
    std::size_t (*violators)(const ViolatorQuery<Real>& query);
    // target[j] += sum over r of factors[r] * rows[r][j]. Numbers up to the end of a line are added as well.
    void (*add_rows)(const Real* const* rows, const Real* factors, std::size_t n_rows, Real* target, std::size_t n);
    // sum of a[i] * b[i] and of c[i] * d[i]. Numbers up to the end of a line are counted as well: zeros in a, c.
    Real (*dot_sides)(const Real* a, const Real* b, std::size_t n, const Real* c, const Real* d, std::size_t m);
    // The same bits as dot_sides() gives one by one.
    void (*dot_sides_twice)(TwoDots<Real>& query);
    // to[j * ld + c] = from[c * ld + j] for c < a line and j < n, a whole number of lines.
    void (*transpose)(const Real* from, Real* to, std::size_t ld, std::size_t n);
    // The position of the largest value, the first of equals; n > 0. Values can be read up to the end of a line.
    std::size_t (*argmax)(const Real* values, std::size_t n);
    // target[j] += factor * row[j], up to the end of a line; returns argmax(row, n).
    std::size_t (*add_and_argmax)(const Real* row, Real factor, Real* target, std::size_t n);
};

struct OnlineLoops {
    OnlineLoopsOf<double> f64;
    OnlineLoopsOf<float> f32;

    template <class Real>
    const OnlineLoopsOf<Real>& of() const {
        if constexpr (sizeof(Real) == sizeof(double))
            return f64;
        else
            return f32;
    }
};

}  // namespace steelyard
