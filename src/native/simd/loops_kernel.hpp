// The hot loops of the kernel functions, and the few numbers that say which function is meant.
#pragma once

#include <cstddef>

namespace steelyard {

enum class KernelKind { linear, polynomial, rbf, laplacian, sigmoid, squared_distance, cityblock, lookup };

// Kernel values of things that are no vectors: rows are then single numbers, the places of the things in this table.
// Whoever asks for a kernel value has made sure that both places are in it. Values may change between calls.
struct KernelTable {
    const double* values = nullptr;  // n by n
    std::size_t n = 0;
};

//   linear      x'z                             rbf        exp(-gamma |x - z|^2)
//   polynomial  (gamma x'z + coef0)^degree      laplacian  exp(-gamma |x - z|_1)
//   sigmoid     tanh(gamma x'z + coef0)
//
// squared_distance |x - z|^2 and cityblock |x - z|_1 are no kernels: with linear they are the sums from which all
// others follow (sum_kind, KernelFinishLoops::from_sums), for whoever evaluates several kernels of the same rows.
//
// lookup is table->values[x * n + z]; the table outlives whoever holds the spec.
//
// All numbers are finite; gamma >= 0 for rbf and laplacian; degree >= 0. What a kind does not name it ignores.
struct KernelSpec {
    KernelKind kind = KernelKind::rbf;
    double gamma = 1.0;
    double coef0 = 0.0;
    int degree = 3;
    const KernelTable* table = nullptr;
};

// The sum that a kernel is a function of.
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

// Vectors of one panel when values are summed as Sum: two of the widest registers, so that every level
// reads the same layout.
template <class Sum>
constexpr std::size_t kPanelWidth = 128 / sizeof(Sum);

// Loops for rows of T against panels of Sum; T is Sum, or float where Sum is double.
//
// Every entry is summed feature by feature, first to last, in whatever tile it falls: an entry depends on
// its two rows alone, and k(x, z) and k(z, x) have the same bits.
template <class T, class Sum>
struct KernelBlockLoops {
    // out[i * ld + j] = k(x_i, z_j), i < n_x, j < n_z. X is row-major. In panels, feature k of row j stands
    // at ((j / width) * d + k) * width + j % width, width = kPanelWidth<Sum>; the last panel is whole.
    void (*block)(const KernelSpec& spec, const T* X, std::size_t n_x, std::size_t d, const Sum* panels,
                  std::size_t n_z, Sum* out, std::size_t ld);
};

template <class Sum>
struct KernelFinishLoops {
    // products[j] = x'z_j becomes k(x, z_j). rbf takes the squared norms; the others ignore them.
    // There is no way from products to laplacian.
    void (*finish)(const KernelSpec& spec, Sum x_norm, const Sum* z_norms, Sum* products, std::size_t n);
    // sums[j], of sum_kind(spec.kind), becomes the kernel value, with the bits that `block` would give it.
    void (*from_sums)(const KernelSpec& spec, Sum* sums, std::size_t n);
    // out[i] = x_i'x_i, with the rounding of `block`.
    void (*norms)(const Sum* X, std::size_t n, std::size_t d, Sum* out);
    // sum of a[j] * b[j]
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
