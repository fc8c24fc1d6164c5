// Hot loops of the kernel functions, and the parameters of a kernel.
#pragma once

#include <cstddef>

namespace steelyard {

enum class KernelKind { linear, polynomial, rbf, laplacian, sigmoid, squared_distance, cityblock, lookup };

// Table of precomputed kernel values. A row is then a single number, the index of its sample in the table.
// Callers ensure that indices are in range. Values may change between calls.
struct KernelTable {
    const double* values = nullptr;  // kernel matrix, n by n
    std::size_t n = 0;
};

// Kernel function and its parameters:
//   linear      x'z                             rbf        exp(-gamma |x - z|^2)
//   polynomial  (gamma x'z + coef0)^degree      laplacian  exp(-gamma |x - z|_1)
//   sigmoid     tanh(gamma x'z + coef0)
// The kinds squared_distance, |x - z|^2, and cityblock, |x - z|_1, are distances and not kernels.
// Every kernel is computed from a distance or the linear kernel (see sum_kind and KernelFinishLoops::from_sums).
// Several kernels on the same rows can therefore share distances and inner products.
// With the kind `lookup`, the kernel value is table->values[x * n + z], and the table must outlive the spec.
// All parameters are finite, degree >= 0, and gamma >= 0 for rbf and laplacian.
// Each kernel ignores parameters that are not in its formula.
struct KernelSpec {
    KernelKind kind = KernelKind::rbf;
    double gamma = 1.0;
    double coef0 = 0.0;
    int degree = 3;
    const KernelTable* table = nullptr;
};

// Returns the kind of sum (distance or inner product) from which a kernel is computed.
constexpr KernelKind sum_kind(KernelKind kind) {
    switch (kind) {
        case KernelKind::rbf: return KernelKind::squared_distance;
        case KernelKind::laplacian: return KernelKind::cityblock;
        case KernelKind::squared_distance:
        case KernelKind::cityblock:
        case KernelKind::lookup: return kind;
        default: return KernelKind::linear;
    }
}

// Number of rows per panel for sums of type Sum: two of the widest registers, so all SIMD levels share one layout.
template <class Sum>
constexpr std::size_t kPanelWidth = 128 / sizeof(Sum);

// Loops for rows of type T and panels of type Sum, where T is Sum, or T is float and Sum is double.
// Every kernel value is summed from the first feature to the last, so it depends only on its two rows.
// k(x, z) and k(z, x) are bit-identical.
template <class T, class Sum>
struct KernelBlockLoops {
    // out[i * ld + j] = k(x_i, z_j) for i < n_x and j < n_z, where X is row-major.
    // Feature k of row j is panels[((j / width) * d + k) * width + j % width] with width = kPanelWidth<Sum>.
    // The last panel is padded to the full width.
    void (*block)(const KernelSpec& spec, const T* X, std::size_t n_x, std::size_t d, const Sum* panels,
                  std::size_t n_z, Sum* out, std::size_t ld);
};

template <class Sum>
struct KernelFinishLoops {
    // Replaces products[j] = x'z_j by k(x, z_j). Only rbf uses the squared norms. laplacian is not supported.
    void (*finish)(const KernelSpec& spec, Sum x_norm, const Sum* z_norms, Sum* products, std::size_t n);
    // Replaces sums[j], of the kind sum_kind(spec.kind), by the kernel value. The result is bit-identical to `block`.
    void (*from_sums)(const KernelSpec& spec, Sum* sums, std::size_t n);
    // out[i] = x_i'x_i, rounded as in `block`.
    void (*norms)(const Sum* X, std::size_t n, std::size_t d, Sum* out);
    // Returns the sum of a[j] * b[j].
    Sum (*dot)(const Sum* a, const Sum* b, std::size_t n);
};

struct KernelLoops {
    KernelBlockLoops<double, double> f64;
    KernelBlockLoops<float, float> f32;
    KernelBlockLoops<float, double> f32_in_f64;
    KernelFinishLoops<double> finish_f64;
    KernelFinishLoops<float> finish_f32;

    template <class Sum>
    const KernelFinishLoops<Sum>& finish() const {
        if constexpr (sizeof(Sum) == sizeof(double))
            return finish_f64;
        else
            return finish_f32;
    }
};

}  // namespace steelyard
