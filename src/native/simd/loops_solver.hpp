// Hot loops of the incremental SVM solver: sums of kernel rows and triangular factors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace steelyard {

struct Sums {
    double sum, size;
};

// Triangular factor L, stored by columns: L_ij = columns[j * stride + i] for i >= j, and inverse[j] = 1 / L_jj.
// Loops read full vectors, so each column is followed by kReadBehind finite values.
constexpr std::size_t kReadBehind = 8;
struct TriangularFactor {
    const double *columns, *inverse;
    std::size_t stride, size;
};

// 16-bit fixed-point numbers from 0 to 1: x is stored as the integer nearest to (x - 1/2) * kFixedScale.
constexpr double kFixedScale = 65534.0;
// Number of fixed-point rows that are summed together.
constexpr std::size_t kFixedRows = 16;

// Weights of kFixedRows rows of fixed-point numbers.
// Row k has the weight parts[k] * scales[k / 2] in units of 1 / kFixedScale, with |parts[k]| <= 32767.
// `shift` adds back the constant 1/2 that was subtracted from every fixed-point value.
struct FixedWeights {
    std::int16_t parts[kFixedRows];
    float scales[kFixedRows / 2];
    float shift;
};

struct SolverLoops {
    // y[i] += a * x[i]
    void (*axpy)(double a, const double* x, double* y, std::size_t n);
    // y[i] += sum over k < 4 of a[k] * x[k][i]: adds four rows in one pass over y.
    void (*axpy4)(const double* a, const double* const* x, double* y, std::size_t n);
    // y[i] += a * x[i], accumulated in double.
    void (*axpy_narrow)(double a, const float* x, double* y, std::size_t n);
    // y[i] += sum over k < 8 of a[k] * x[k][i]; the sum is computed in float.
    void (*add_narrow8)(const float* a, const float* const* x, double* y, std::size_t n);
    // y[i] += shift + sum over k < kFixedRows of weight k * x[k][i].
    // Products and sums of two products are exact; longer sums are computed in float.
    void (*add_fixed16)(const FixedWeights& weights, const std::int16_t* const* x, double* y, std::size_t n);
    void (*to_fixed)(const double* x, std::int16_t* fixed, std::size_t n);
    void (*from_fixed)(const std::int16_t* fixed, float* x, std::size_t n);
    // x = L^-1 x
    void (*solve_forward)(TriangularFactor L, double* x);
    // x = L^-T x
    void (*solve_backward)(TriangularFactor L, double* x);
    // Givens rotation: (out[i], carry[i]) = (c x[i] + s carry[i], c carry[i] - s x[i]).
    // `out` may overlap x if `out` begins before x.
    void (*rotate)(double c, double s, const double* x, double* carry, double* out, std::size_t n);
    // steps[i] = largest step for which z[i] + step * dz[i] stays in [lower[i], upper[i]], or infinity if dz[i] is 0.
    // Returns the smallest entry of steps.
    double (*steps_to_bounds)(const double* z, const double* lower, const double* upper, const double* dz,
                              std::size_t n, double* steps);
    // z[i] += step * dz[i], clipped to the bounds.
    void (*move_within)(double step, const double* dz, const double* lower, const double* upper, double* z,
                        std::size_t n);
    // Returns the largest violation: -(e[i] + b) where z[i] < upper[i], or e[i] + b where z[i] > lower[i].
    // The returned violation is at least 0.
    double (*worst)(const double* e, double b, const double* z, const double* lower, const double* upper,
                    std::size_t n);
    // Writes all i that may violate their optimality conditions in ascending order, and returns their number.
    // An index i may violate if e[i] + b < limit and z[i] < upper[i], or -(e[i] + b) < limit and z[i] > lower[i].
    // The limit of i is slack - exact_at[i]. The output must have space for n entries.
    std::size_t (*suspects)(const double* e, double b, const double* z, const double* lower, const double* upper,
                            double slack, const double* exact_at, std::size_t n, std::uint32_t* found);
    std::size_t (*count_nonzero)(const double* a, std::size_t n);
    // Returns the sum of all a[i] and the sum of all |a[i]|.
    Sums (*sums)(const double* a, std::size_t n);
    // Returns the sum of all |a[i]| * b[i].
    double (*absolute_dot)(const double* a, const double* b, std::size_t n);
};

}  // namespace steelyard
