// Samples that come and go, and rows of their kernel matrix kept within a memory budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "steelyard/kernels.hpp"

namespace steelyard {

// Where kernel values come from: out[i * n_z + j] = k(x_i, z_j) for rows of the given number of features.
// May throw; then nothing has changed.
using KernelFunction =
    std::function<void(const double* X, std::size_t n_x, const double* Z, std::size_t n_z, double* out)>;

// The samples have the numbers 0 .. size() - 1. A kept row of the kernel matrix follows every change of the
// samples, so that it costs kernel evaluations only the first time.
//
// Rows are kept in float as long as that is enough: half as much to read, and sums over them come with a bound of
// what float can have cost (narrow_error). widen() turns to double for good. Single values are always evaluated in
// double: exact_sum, exact_sums, evaluate.
class KernelRows {
  public:
    // `function` is empty for a kernel that the native loops know.
    KernelRows(std::size_t n_features, KernelSpec spec, KernelFunction function, std::size_t budget_bytes);

    std::size_t size() const { return size_; }
    std::size_t n_features() const { return n_features_; }
    const double* sample(std::size_t i) const { return samples_.data() + i * n_features_; }
    double diagonal(std::size_t i) const { return diagonal_[i]; }
    // Square roots of the diagonal.
    const std::vector<double>& norms() const { return norms_; }
    double largest_norm() const { return largest_norm_; }

    void append(const double* x);
    // Takes sample i away; the last one takes its number.
    void swap_remove(std::size_t i);
    // Takes the last sample away.
    void pop();

    // k(x_i, x_j) for all j < size(); T is double if is_wide(), else float. The last eight rows that were asked for
    // stay where they are.
    template <class T>
    const T* row(std::size_t i) {
        return reinterpret_cast<const T*>(kept_row(i));
    }
    bool is_wide() const { return is_wide_; }
    void widen();
    // The row need not be kept any longer.
    void release(std::size_t i);
    template <class Predicate>
    void release_if(Predicate&& unwanted) {
        for (std::size_t slot = kept_.size(); slot-- > 0;)
            if (unwanted(kept_[slot].sample)) drop_slot(static_cast<std::uint32_t>(slot));
    }
    std::size_t n_kept() const { return kept_.size(); }
    // Samples whose rows are kept, in the order in which sums over them are made.
    std::vector<std::uint32_t> kept_samples() const;
    // Makes sure that the row is kept.
    void keep(std::size_t i) { kept_row(i); }

    // out += sum over k of weights[k] * row(samples[k])
    void add_rows(const std::vector<std::uint32_t>& samples, const std::vector<double>& weights, double* out);
    // Beyond the rounding of doubles, no entry of add_rows is off by more, times `size` = sum |weights[k]| norm_k.
    double narrow_error(double size) const;
    // The same, where only the rows are float and sums are double.
    void add_rows_carefully(const std::vector<std::uint32_t>& samples, const std::vector<double>& weights, double* out);
    double careful_error(double size) const;

    // sum over j of z[j] * k(x_j, x_i), in double.
    double exact_sum(std::size_t i, const double* z);
    // The same for all i.
    void exact_sums(const double* z, double* out) const;
    // k(x_i, x) for the given samples, of which `packed` has the values unless a function supplies them.
    void evaluate(std::size_t i, const std::vector<std::uint32_t>& samples, const PackedRows<double>& packed,
                  double* out);

  private:
    static constexpr std::uint32_t kNone = UINT32_MAX;

    struct Kept {
        std::uint32_t sample;
        std::uint64_t last_use;
        AlignedBuffer<std::byte> values;
    };

    std::size_t bytes_of_value() const { return is_wide_ ? sizeof(double) : sizeof(float); }
    std::size_t max_kept() const;
    AlignedBuffer<std::byte> new_buffer() const { return aligned_buffer<std::byte>(capacity_ * bytes_of_value()); }
    template <class T>
    void put_column(std::size_t i);
    template <class T>
    void move_column(std::size_t from, std::size_t to);
    void evaluate_row(std::size_t i, double* out) const;
    void reserve(std::size_t capacity);
    void evaluate_new_column(std::size_t i);
    const std::byte* kept_row(std::size_t i);
    Kept& new_slot(std::size_t i);
    void drop_slot(std::uint32_t slot);

    std::size_t n_features_, size_ = 0, capacity_ = 0, budget_;
    KernelSpec spec_;
    KernelFunction function_;
    bool is_wide_;
    PackedRows<double> packed_, packed_kept_;  // empty when a function supplies the values
    std::vector<double> samples_, diagonal_, norms_, row_;
    std::vector<double> column_;         // of a sample, its values with the kept ones
    std::size_t column_sample_ = kNone;  // whose column it is, as long as the kept ones are the same
    double largest_norm_ = 0.0;
    std::vector<Kept> kept_;
    std::vector<AlignedBuffer<std::byte>> spare_;
    std::vector<std::uint32_t> slot_of_;
    std::uint64_t clock_ = 0;
};

}  // namespace steelyard
