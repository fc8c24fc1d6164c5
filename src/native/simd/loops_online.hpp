// Hot loops of the online kernel learners, executed for every sample and support vector.
// Subnormal numbers make sums of products slow, so callers may treat them as zero (see denormals.hpp).
// The selection of violators compares subnormal numbers correctly in either case.
#pragma once

#include <cstddef>
#include <cstdint>

namespace steelyard {

// Number of keys that are written together.
constexpr std::size_t kKeyPadding = 16;

// Integer type that is used to compare floating-point numbers of type Real.
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

// Number of values per cache line. Arrays must be readable up to a multiple of this number.
template <class Real>
constexpr std::size_t kLineOf = 64 / sizeof(Real);

// Query that finds the support vectors of the opposite class that violate the margin of a sample.
// The arrays must be readable, and `losses` writable, up to the end of their last cache line.
template <class Real>
struct ViolatorQuery {
    const Real* scores;        // score g_i of each support vector, unscaled
    const Real* similarities;  // kernel value k(x, s_i) of the sample with each support vector
    std::size_t n;
    Real base, slope;  // the loss of vector i is base + slope * g_i
    std::size_t most;  // maximum number of selected vectors
    Real* losses;      // output: the loss of each of the n vectors, including losses that are not positive
    typename KeyOf<Real>::Type* keys;  // scratch memory for n keys, rounded up to a multiple of kKeyPadding
    std::uint32_t* chosen;  // output: selected positions in ascending order; space for n + kKeyPadding entries
};

// Products of one row with two rows of weights. The two parts of a row (one per class) begin `apart` numbers apart.
// Both parts of a row are read up to the end of their last cache line, where the weights must be zero.
template <class Real>
struct TwoDots {
    const Real* weights[2];
    const Real* row;
    std::size_t counts[2], apart;
    Real products[2];  // output: the products with the first and with the second row of weights
};

template <class Real>
struct OnlineLoopsOf {
    // out[j] = values[index[j]]
    void (*gather)(const Real* values, const std::uint32_t* index, Real* out, std::size_t n);
    // Selects every i with loss_i > 0, but at most `most` vectors.
    // Vectors with the largest similarity are preferred; among equal similarities, lower positions are preferred.
    // Returns the number of selected vectors.
    std::size_t (*violators)(const ViolatorQuery<Real>& query);
    // target[j] += sum over r of factors[r] * rows[r][j] for j < n; n is rounded up to whole cache lines.
    void (*add_rows)(const Real* const* rows, const Real* factors, std::size_t n_rows, Real* target, std::size_t n);
    // Returns the sum of all a[i] * b[i] for i < n and c[i] * d[i] for i < m.
    // The arrays are read up to the end of the last cache line; a and c must be zero in this padding.
    Real (*dot_sides)(const Real* a, const Real* b, std::size_t n, const Real* c, const Real* d, std::size_t m);
    // Computes two results of dot_sides() at once. They are bit-identical to those of two calls.
    void (*dot_sides_twice)(TwoDots<Real>& query);
    // Transposes: to[j * ld + c] = from[c * ld + j] for j < n and c < k.
    // In transpose(), k is the number of values per cache line, and n is a multiple of k.
    void (*transpose)(const Real* from, Real* to, std::size_t ld, std::size_t n);
    // Returns the first position of the largest value (n > 0). Values must be readable up to the end of a cache line.
    std::size_t (*argmax)(const Real* values, std::size_t n);
    // target[j] += factor * row[j], up to the end of the last cache line. Returns argmax(row, n).
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
