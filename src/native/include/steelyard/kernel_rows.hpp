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
// samples, so that row(i) costs kernel evaluations only the first time.
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

    // k(x_i, x_j) for all j < size(). The last four rows that were asked for stay where they are.
    const double* row(std::size_t i);
    bool holds(std::size_t i) const { return slot_of_[i] != kNone; }
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
    // sum over kept rows j of z[j] * k(x_j, x_i); with the number of those that have a weight in `n_weights`.
    double kept_sum(std::size_t i, const double* z, std::size_t& n_weights) const;
    std::size_t max_kept() const;

    // out += sum over k of weights[k] * row(samples[k])
    void add_rows(const std::vector<std::uint32_t>& samples, const std::vector<double>& weights, double* out);

  private:
    static constexpr std::uint32_t kNone = UINT32_MAX;

    struct Kept {
        std::uint32_t sample;
        std::uint64_t last_use;
        AlignedBuffer<double> values;
    };

    void evaluate(std::size_t i, double* out) const;
    void reserve(std::size_t capacity);
    void extend_kept_rows();
    Kept& new_slot(std::size_t i);
    void drop_slot(std::uint32_t slot);

    std::size_t n_features_, size_ = 0, capacity_ = 0, budget_;
    KernelSpec spec_;
    KernelFunction function_;
    PackedRows<double> packed_, packed_kept_;  // empty when a function supplies the values
    std::vector<double> samples_, diagonal_, norms_, new_column_;
    double largest_norm_ = 0.0;
    std::vector<Kept> kept_;
    std::vector<AlignedBuffer<double>> spare_;
    std::vector<std::uint32_t> slot_of_;
    std::uint64_t clock_ = 0;
};

}  // namespace steelyard
