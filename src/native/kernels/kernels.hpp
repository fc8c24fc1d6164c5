// Kernel values for learners: blocks, one row against a budget of stored vectors, sums over support vectors.
//
// Pick the entry point by what is kept:
//   vectors that stay while samples pass by (a budget, support vectors)   PackedRows + kernel_row, kernel_rows
//   only f(x) = sum of weights[j] k(x, z_j) is wanted                     PackedRows + kernel_sums
//   two tables, once                                                      kernel_block
//   a table with itself                                                   kernel_matrix
//
// Whatever the entry point, the level's tiles and the number of threads, k(x, z) has the same bits (on one
// instruction level, for one pair of types), k(x, z) == k(z, x), and rbf and laplacian of a row with itself
// are exactly 1. Distances are summed from differences, so no norms have to be kept and a common offset of the
// data costs nothing. Values must be finite; see KernelSpec for the formulas and their limits.
#pragma once

#include <cstddef>

#include "common/rows.hpp"
#include "simd/loops_kernel.hpp"

namespace steelyard {

// Vectors kept in the layout in which kernel values are fastest: panels of a few vectors side by side, feature
// after feature, so that one loop step works on a whole register of vectors.
//
// Rows are T, sums and answers are Sum. PackedRows<double> and PackedRows<float> sum in their own type;
// PackedRows<float, double> holds float32 rows for sums in float64. The panels hold Sum: widening once, when a row
// comes in, is cheaper than at every use.
template <class T, class Sum = T>
class PackedRows {
  public:
    explicit PackedRows(std::size_t n_features, std::size_t capacity = 0);
    explicit PackedRows(Rows<T> rows);

    std::size_t size() const { return size_; }
    std::size_t n_features() const { return n_features_; }
    std::size_t capacity() const { return capacity_; }

    // Makes room for this many vectors; append allocates only beyond it.
    void reserve(std::size_t capacity);
    void append(const T* row);
    // i < size() in all of these.
    void replace(std::size_t i, const T* row);
    void copy_row(std::size_t i, T* row) const;
    // Takes vector i away; the last one moves into its place.
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

// out[j] = k(x, z_j) for j < Z.size(). Neither allocates nor starts threads: for loops over a stream.
template <class T, class Sum>
void kernel_row(const KernelSpec& spec, const T* x, const PackedRows<T, Sum>& Z, Sum* out) noexcept;

// out[i * ld + j] = k(x_i, z_j); several rows at once are cheaper than one by one.
template <class T, class Sum>
void kernel_rows(const KernelSpec& spec, Rows<T> X, const PackedRows<T, Sum>& Z, Sum* out, std::size_t ld,
                 unsigned n_threads);

// out[i] = sum over j of weights[j] k(x_i, z_j), without the matrix: decision functions.
template <class T, class Sum>
void kernel_sums(const KernelSpec& spec, Rows<T> X, const PackedRows<T, Sum>& Z, const Sum* weights, Sum* out,
                 unsigned n_threads);

// out[i * ld + j] = k(x_i, z_j).
template <class T>
void kernel_block(const KernelSpec& spec, Rows<T> X, Rows<T> Z, T* out, std::size_t ld, unsigned n_threads);

// out[i * ld + j] = k(x_i, x_j), symmetric to the last bit: of wide rows half is computed and mirrored.
template <class T>
void kernel_matrix(const KernelSpec& spec, Rows<T> X, T* out, std::size_t ld, unsigned n_threads);

// out[i] = k(x_i, x_i).
template <class T>
void kernel_diagonal(const KernelSpec& spec, Rows<T> X, T* out);

// products[i * ld + j] = x_i'z_j, from a sparse product say, becomes k(x_i, z_j) in place. rbf needs the squared
// norms of both sides, the others take null; laplacian and squared_distance leave them as they are.
template <class T>
void kernel_from_products(const KernelSpec& spec, T* products, std::size_t n_x, std::size_t n_z, std::size_t ld,
                          const T* x_norms, const T* z_norms, unsigned n_threads);

}  // namespace steelyard
