// Kernel values: blocks of a kernel matrix, rows for stored vectors, and sums over support vectors.
//
// Entry points:
//   kernel_row, kernel_rows   values of a stream of samples with stored vectors (PackedRows)
//   kernel_sums               decision values: sum of weights[j] k(x, z_j) over stored vectors z_j
//   kernel_block              values of the rows of one matrix with the rows of another matrix
//   kernel_matrix             values of the rows of one matrix with each other
//
// At one SIMD level and for one pair of types, all entry points return bit-identical kernel values.
// Kernel values do not depend on the tile size and the number of threads.
// k(x, z) == k(z, x) holds exactly, and rbf and laplacian of a row with itself are exactly 1.
// Distances are summed from differences, so a common offset of the data costs no accuracy. Values must be finite.
// KernelSpec documents the formulas and their limits.
#pragma once

#include <cstddef>

#include "common/rows.hpp"
#include "simd/loops_kernel.hpp"

namespace steelyard {

// Vectors in a memory layout for fast kernel values: panels of a few vectors, interleaved by feature.
// One loop step processes a full register of vectors.
//
// T is the type of rows. Sum is the type of sums and results.
// PackedRows<float, double> stores float32 rows for sums in float64.
// If Sum is omitted, sums have the type of the rows.
// Panels store numbers of type Sum: a row is converted once, when it is added, and not at every use.
template <class T, class Sum = T>
class PackedRows {
  public:
    explicit PackedRows(std::size_t n_features, std::size_t capacity = 0);
    explicit PackedRows(Rows<T> rows);

    std::size_t size() const { return size_; }
    std::size_t n_features() const { return n_features_; }
    std::size_t capacity() const { return capacity_; }

    // Allocates memory for a number of vectors, so that append() does not allocate until there are more.
    void reserve(std::size_t capacity);
    void append(const T* row);
    // In the following functions, i must be less than size().
    void replace(std::size_t i, const T* row);
    void copy_row(std::size_t i, T* row) const;
    // Removes vector i; the last vector moves to position i.
    void swap_remove(std::size_t i);
    void clear() { size_ = 0; }

    T operator()(std::size_t i, std::size_t feature) const { return static_cast<T>(panels_[index(i, feature)]); }
    const Sum* panels() const { return panels_.get(); }

  private:
    static constexpr std::size_t width = kPanelWidth<Sum>;
    std::size_t index(std::size_t i, std::size_t feature) const {
        return (i / width * n_features_ + feature) * width + i % width;
    }

    std::size_t n_features_, size_ = 0, capacity_ = 0;
    AlignedBuffer<Sum> panels_;
};

// out[j] = k(x, z_j) for j < Z.size().
// This function allocates no memory and starts no threads, so it is suitable for loops over streams.
template <class T, class Sum>
void kernel_row(const KernelSpec& spec, const T* x, const PackedRows<T, Sum>& Z, Sum* out) noexcept;

// out[i * ld + j] = k(x_i, z_j). One call for several rows is faster than one call per row.
template <class T, class Sum>
void kernel_rows(const KernelSpec& spec, Rows<T> X, const PackedRows<T, Sum>& Z, Sum* out, std::size_t ld,
                 unsigned n_threads);

// out[i] = sum over j of weights[j] k(x_i, z_j), as in decision functions. The kernel matrix is not stored.
template <class T, class Sum>
void kernel_sums(const KernelSpec& spec, Rows<T> X, const PackedRows<T, Sum>& Z, const Sum* weights, Sum* out,
                 unsigned n_threads);

// out[i * ld + j] = k(x_i, z_j).
template <class T>
void kernel_block(const KernelSpec& spec, Rows<T> X, Rows<T> Z, T* out, std::size_t ld, unsigned n_threads);

// out[i * ld + j] = k(x_i, x_j), exactly symmetric. For wide rows, one triangle is computed and copied.
template <class T>
void kernel_matrix(const KernelSpec& spec, Rows<T> X, T* out, std::size_t ld, unsigned n_threads);

// out[i] = k(x_i, x_i).
template <class T>
void kernel_diagonal(const KernelSpec& spec, Rows<T> X, T* out);

// Converts products[i * ld + j] = x_i'z_j, for example from a sparse product, to k(x_i, z_j) in place.
// The rbf kernel needs the squared norms of the rows of X and Z. For other kernels, pass null pointers instead.
// laplacian and squared_distance are not supported.
template <class T>
void kernel_from_products(const KernelSpec& spec, T* products, std::size_t n_x, std::size_t n_z, std::size_t ld,
                          const T* x_norms, const T* z_norms, unsigned n_threads);

}  // namespace steelyard
