// KernelRows: samples that can be added and removed, with a cache of their kernel rows within a memory budget.
// The kernel row of a sample contains its kernel values with all samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "kernels/kernels.hpp"

namespace steelyard {

// Kernel function: writes out[i * n_z + j] = k(x_i, z_j) for rows with the given number of features.
// If the kernel function throws, the KernelRows object does not change.
using KernelFunction =
    std::function<void(const double* X, std::size_t n_x, const double* Z, std::size_t n_z, double* out)>;

// Storage type of cached kernel values, numbered by its size in bytes. `fixed` requires values in [0, 1].
enum class Precision : std::uint8_t { fixed = 2, single = 4, full = 8 };

// Samples with cached kernel rows. The samples have the numbers 0 .. size() - 1.
// Cached kernel rows are updated when samples change, so no kernel value is computed twice.
//
// Rows are cached in the smallest sufficient type, which reduces memory traffic.
// Sums over cached rows have an error bound. widen() switches permanently to the next larger type.
// The functions exact_sum, exact_sums and evaluate always compute kernel values in double.
class KernelRows {
  public:
    // If `function` is empty, the native kernel `spec` is used.
    KernelRows(std::size_t n_features, KernelSpec spec, KernelFunction function, std::size_t budget_bytes);

    std::size_t size() const { return size_; }
    std::size_t n_features() const { return n_features_; }
    // Returns the native kernel. Must not be called if the kernel is a Python function.
    const KernelSpec& kernel() const { return spec_; }
    bool has_function() const { return static_cast<bool>(function_); }
    const double* sample(std::size_t i) const { return samples_.data() + i * n_features_; }
    double diagonal(std::size_t i) const { return diagonal_[i]; }
    // Returns the square roots of the diagonal of the kernel matrix.
    const std::vector<double>& norms() const { return norms_; }
    double largest_norm() const { return largest_norm_; }

    void append(const double* x);
    // Removes sample i. The last sample is renumbered to i.
    void swap_remove(std::size_t i);
    // Removes the last sample.
    void pop();

    // Returns k(x_i, x_j) for all j < size(). The type T is double if is_wide(), else float.
    // The pointers of the two most recent calls stay valid.
    template <class T>
    const T* row(std::size_t i) {
        if constexpr (std::is_same_v<T, float>)
            if (precision_ == Precision::fixed) return decoded_row(i);
        return reinterpret_cast<const T*>(kept_row(i));
    }
    Precision precision() const { return precision_; }
    bool is_wide() const { return precision_ == Precision::full; }
    void widen();
    // Marks a cached row as no longer needed.
    void release(std::size_t i);
    template <class Predicate>
    void release_if(Predicate&& unwanted) {
        for (std::size_t slot = kept_.size(); slot-- > 0;)
            if (unwanted(kept_[slot].sample)) drop_slot(static_cast<std::uint32_t>(slot));
    }
    std::size_t n_kept() const { return kept_.size(); }
    // Returns the samples whose rows are cached, in the order of summation.
    std::vector<std::uint32_t> kept_samples() const;
    // Caches a row.
    void keep(std::size_t i) { kept_row(i); }

    // out += sum over k of weights[k] * row(samples[k]). Returns an error bound for the entries of out.
    // The returned error bound excludes rounding errors of double arithmetic.
    double add_rows(const std::vector<std::uint32_t>& samples, const std::vector<double>& weights, double* out);
    // out[i] = sum over j of z[j] * k(x_j, x_i), with a smaller error than add_rows().
    // Returns an error bound as add_rows() does.
    double sum_rows(const double* z, double* out);

    // Returns the sum over j of z[j] * k(x_j, x_i), computed in double. n_nonzero is the number of nonzero z[j].
    double exact_sum(std::size_t i, const double* z, std::size_t n_nonzero);
    // out[i] = exact_sum(i, z, ...) for all i.
    void exact_sums(const double* z, double* out) const;
    // Computes k(x_i, x) for the given samples x.
    // `packed` contains the same samples and is ignored if the kernel is a Python function.
    void evaluate(std::size_t i, const std::vector<std::uint32_t>& samples, const PackedRows<double>& packed,
                  double* out);

  private:
    static constexpr std::uint32_t kNone = UINT32_MAX;

    struct Kept {
        std::uint32_t sample;
        std::uint64_t last_use;
        AlignedBuffer<std::byte> values;
    };

    std::size_t bytes_of_value() const { return static_cast<std::size_t>(precision_); }
    std::size_t max_kept() const;
    AlignedBuffer<std::byte> new_buffer() const { return aligned_buffer<std::byte>(capacity_ * bytes_of_value()); }
    void encode(const std::vector<double>& values, std::byte* out) const;
    template <class T>
    void put_values(std::size_t i);
    template <class T>
    void move_values(std::size_t from, std::size_t to);
    void put_column(std::size_t i);
    void move_column(std::size_t from, std::size_t to);
    double add_fixed(const std::vector<std::uint32_t>& samples, const std::vector<double>& weights, double* out);
    double add_single(const std::vector<std::uint32_t>& samples, const std::vector<double>& weights, double* out);
    double add_full(const std::vector<std::uint32_t>& samples, const std::vector<double>& weights, double* out);
    const float* decoded_row(std::size_t i);
    void evaluate_row(std::size_t i, double* out) const;
    void reserve(std::size_t capacity);
    void evaluate_new_column(std::size_t i);
    const std::byte* kept_row(std::size_t i);
    Kept& new_slot(std::size_t i);
    void drop_slot(std::uint32_t slot);

    std::size_t n_features_, size_ = 0, capacity_ = 0, budget_;
    KernelSpec spec_;
    KernelFunction function_;
    Precision precision_;
    PackedRows<double> packed_, packed_kept_;  // both are empty if the kernel is a Python function
    std::vector<double> samples_, diagonal_, norms_, row_;
    std::vector<double> column_;         // kernel values of a sample with the cached rows
    std::size_t column_sample_ = kNone;  // sample of column_; reset when the cached rows change
    double largest_norm_ = 0.0;
    std::vector<std::byte> encoded_;
    std::vector<float> decoded_[2];
    std::vector<Kept> kept_;
    std::vector<AlignedBuffer<std::byte>> spare_;
    std::vector<std::uint32_t> slot_of_;
    std::uint64_t clock_ = 0;
};

}  // namespace steelyard
