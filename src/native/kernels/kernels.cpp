#include "kernels/kernels.hpp"

#include <algorithm>
#include <vector>

#include "common/threads.hpp"
#include "simd/simd.hpp"

namespace steelyard {

namespace {

// Number of rows per task. The rows of a task and one panel stay in the L2 cache.
// The task size is a multiple of every tile and panel size, so all tasks of a symmetric matrix end at panel boundaries.
constexpr std::size_t kKernelTaskRows = 64;

// Number of features below which computing a value twice is faster than copying it to the other triangle.
constexpr std::size_t kMirroredFeatures = 40;

const KernelBlockLoops<double, double>& block_loops(const double*, const double*) { return loops().kernel.f64; }
const KernelBlockLoops<float, float>& block_loops(const float*, const float*) { return loops().kernel.f32; }
const KernelBlockLoops<float, double>& block_loops(const float*, const double*) { return loops().kernel.f32_in_f64; }
const KernelFinishLoops<double>& finish_loops(const double*) { return loops().kernel.finish_f64; }
const KernelFinishLoops<float>& finish_loops(const float*) { return loops().kernel.finish_f32; }

// Returns 1 if the work is too small to start several threads, otherwise `wanted`.
unsigned threads_for_kernels(unsigned wanted, std::size_t n_x, std::size_t n_z, std::size_t d) {
    const double work = static_cast<double>(n_x) * static_cast<double>(n_z) * static_cast<double>(d + 20);
    return work < 1e6 ? 1u : wanted;
}

// Calls body(begin, end) for consecutive blocks of at most kKernelTaskRows rows.
template <class Body>
void for_row_tasks(std::size_t n_rows, unsigned n_threads, Body&& body) {
    const std::size_t n_tasks = (n_rows + kKernelTaskRows - 1) / kKernelTaskRows;
    parallel_for(n_tasks, n_threads, [&](std::size_t task) {
        body(task * kKernelTaskRows, std::min(n_rows, (task + 1) * kKernelTaskRows));
    });
}

// Square block of a matrix, given by a range of rows and a range of columns.
struct Square {
    std::size_t row, row_end, column, column_end;
};

// Copies the part of the block below the diagonal to the upper triangle of the matrix.
template <class T>
void mirror(T* out, std::size_t ld, Square block) {
    for (std::size_t j = block.column; j < block.column_end; ++j)
        for (std::size_t i = std::max(block.row, j + 1); i < block.row_end; ++i) out[j * ld + i] = out[i * ld + j];
}

}  // namespace

template <class T, class Sum>
PackedRows<T, Sum>::PackedRows(std::size_t n_features, std::size_t capacity) : n_features_(n_features) {
    reserve(capacity);
}

template <class T, class Sum>
PackedRows<T, Sum>::PackedRows(Rows<T> rows) : PackedRows(rows.n_features, rows.n_rows) {
    for (std::size_t i = 0; i < rows.n_rows; ++i) append(rows.data + i * n_features_);
}

template <class T, class Sum>
void PackedRows<T, Sum>::reserve(std::size_t capacity) {
    if (capacity <= capacity_) return;
    const std::size_t rounded = (capacity + width - 1) / width * width;
    AlignedBuffer<Sum> grown = aligned_buffer<Sum>(rounded * n_features_);
    // Loops read full panels, so unused lanes must contain finite numbers.
    Sum* rest = std::copy_n(panels_.get(), capacity_ * n_features_, grown.get());
    std::fill(rest, grown.get() + rounded * n_features_, Sum(0));
    panels_ = std::move(grown);
    capacity_ = rounded;
}

template <class T, class Sum>
void PackedRows<T, Sum>::append(const T* row) {
    if (size_ == capacity_) reserve(std::max(2 * capacity_, width));
    replace(size_++, row);
}

template <class T, class Sum>
void PackedRows<T, Sum>::replace(std::size_t i, const T* row) {
    Sum* slot = panels_.get() + index(i, 0);
    for (std::size_t k = 0; k < n_features_; ++k) slot[k * width] = row[k];
}

template <class T, class Sum>
void PackedRows<T, Sum>::copy_row(std::size_t i, T* row) const {
    const Sum* slot = panels_.get() + index(i, 0);
    for (std::size_t k = 0; k < n_features_; ++k) row[k] = static_cast<T>(slot[k * width]);
}

template <class T, class Sum>
void PackedRows<T, Sum>::swap_remove(std::size_t i) {
    --size_;
    const Sum* last = panels_.get() + index(size_, 0);
    Sum* slot = panels_.get() + index(i, 0);
    for (std::size_t k = 0; k < n_features_; ++k) slot[k * width] = last[k * width];
}

template <class T, class Sum>
void kernel_row(const KernelSpec& spec, const T* x, const PackedRows<T, Sum>& Z, Sum* out) noexcept {
    block_loops(x, out).block(spec, x, 1, Z.n_features(), Z.panels(), Z.size(), out, Z.size());
}

template <class T, class Sum>
void kernel_rows(const KernelSpec& spec, Rows<T> X, const PackedRows<T, Sum>& Z, Sum* out, std::size_t ld,
                 unsigned n_threads) {
    const auto& loops = block_loops(X.data, out);
    const std::size_t d = X.n_features;
    for_row_tasks(X.n_rows, threads_for_kernels(n_threads, X.n_rows, Z.size(), d),
                  [&](std::size_t begin, std::size_t end) {
                      loops.block(spec, X.data + begin * d, end - begin, d, Z.panels(), Z.size(), out + begin * ld, ld);
                  });
}

template <class T, class Sum>
void kernel_sums(const KernelSpec& spec, Rows<T> X, const PackedRows<T, Sum>& Z, const Sum* weights, Sum* out,
                 unsigned n_threads) {
    const auto dot = finish_loops(out).dot;
    const std::size_t n = X.n_rows, n_z = Z.size();
    const unsigned threads = std::max(1u, threads_for_kernels(n_threads, n, n_z, X.n_features));
    constexpr std::size_t together = 16;                // number of rows whose values are computed together
    std::vector<Sum> values(threads * together * n_z);  // scratch memory with one part per thread
    parallel_for(threads, threads, [&](std::size_t share) {
        Sum* block = values.data() + share * together * n_z;
        const std::size_t end = n * (share + 1) / threads;
        for (std::size_t begin = n * share / threads; begin < end; begin += together) {
            const std::size_t rows = std::min(together, end - begin);
            kernel_rows(spec, Rows<T>{X.data + begin * X.n_features, rows, X.n_features}, Z, block, n_z, 1);
            for (std::size_t i = 0; i < rows; ++i) out[begin + i] = dot(weights, block + i * n_z, n_z);
        }
    });
}

template <class T>
void kernel_block(const KernelSpec& spec, Rows<T> X, Rows<T> Z, T* out, std::size_t ld, unsigned n_threads) {
    kernel_rows(spec, X, PackedRows<T>(Z), out, ld, n_threads);
}

template <class T>
void kernel_matrix(const KernelSpec& spec, Rows<T> X, T* out, std::size_t ld, unsigned n_threads) {
    const PackedRows<T> Z(X);
    const std::size_t d = X.n_features;
    if (d < kMirroredFeatures) return kernel_rows(spec, X, Z, out, ld, n_threads);
    const auto& loops = block_loops(X.data, out);
    const unsigned threads = threads_for_kernels(n_threads, X.n_rows, X.n_rows, d);
    // A block is copied to the other triangle while it is in the L1 cache. No other task writes there.
    for_row_tasks(X.n_rows, threads, [&](std::size_t begin, std::size_t end) {
        for (std::size_t column = 0; column < end; column += kKernelTaskRows) {
            const Square block{begin, end, column, std::min(column + kKernelTaskRows, end)};
            loops.block(spec, X.data + begin * d, end - begin, d, Z.panels() + column * d, block.column_end - column,
                        out + begin * ld + column, ld);
            mirror(out, ld, block);
        }
    });
}

template <class T>
void kernel_diagonal(const KernelSpec& spec, Rows<T> X, T* out) {
    if (spec.kind == KernelKind::rbf || spec.kind == KernelKind::laplacian) {
        std::fill_n(out, X.n_rows, T(1));
        return;
    }
    if (spec.kind == KernelKind::squared_distance || spec.kind == KernelKind::cityblock) {
        std::fill_n(out, X.n_rows, T(0));
        return;
    }
    if (spec.kind == KernelKind::lookup) {
        for (std::size_t i = 0; i < X.n_rows; ++i) {
            const auto place = static_cast<std::size_t>(X.data[i * X.n_features]);
            out[i] = static_cast<T>(spec.table->values[place * (spec.table->n + 1)]);
        }
        return;
    }
    const KernelFinishLoops<T>& loops = finish_loops(out);
    loops.norms(X.data, X.n_rows, X.n_features, out);
    loops.finish(spec, T(0), nullptr, out, X.n_rows);
}

template <class T>
void kernel_from_products(const KernelSpec& spec, T* products, std::size_t n_x, std::size_t n_z, std::size_t ld,
                          const T* x_norms, const T* z_norms, unsigned n_threads) {
    const KernelFinishLoops<T>& loops = finish_loops(products);
    for_row_tasks(n_x, threads_for_kernels(n_threads, n_x, n_z, 0), [&](std::size_t begin, std::size_t end) {
        for (std::size_t i = begin; i < end; ++i)
            loops.finish(spec, x_norms ? x_norms[i] : T(0), z_norms, products + i * ld, n_z);
    });
}

#define STEELYARD_INSTANTIATE(T, Sum)                                                                              \
    template class PackedRows<T, Sum>;                                                                             \
    template void kernel_row(const KernelSpec&, const T*, const PackedRows<T, Sum>&, Sum*) noexcept;               \
    template void kernel_rows(const KernelSpec&, Rows<T>, const PackedRows<T, Sum>&, Sum*, std::size_t, unsigned); \
    template void kernel_sums(const KernelSpec&, Rows<T>, const PackedRows<T, Sum>&, const Sum*, Sum*, unsigned);
STEELYARD_INSTANTIATE(double, double)
STEELYARD_INSTANTIATE(float, float)
STEELYARD_INSTANTIATE(float, double)
#undef STEELYARD_INSTANTIATE

#define STEELYARD_INSTANTIATE(T)                                                                               \
    template void kernel_block(const KernelSpec&, Rows<T>, Rows<T>, T*, std::size_t, unsigned);                \
    template void kernel_matrix(const KernelSpec&, Rows<T>, T*, std::size_t, unsigned);                        \
    template void kernel_diagonal(const KernelSpec&, Rows<T>, T*);                                             \
    template void kernel_from_products(const KernelSpec&, T*, std::size_t, std::size_t, std::size_t, const T*, \
                                       const T*, unsigned);
STEELYARD_INSTANTIATE(double)
STEELYARD_INSTANTIATE(float)
#undef STEELYARD_INSTANTIATE

}  // namespace steelyard
