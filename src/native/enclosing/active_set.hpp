// Active set of a solver: contiguous kernel values among its members, in double precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kernel_rows.hpp"

namespace steelyard {

// Members have slots 0 .. size() - 1.
// The set stores all data that the solver reads between two passes over all samples, contiguously and in slot order.
class ActiveSet {
  public:
    static constexpr std::uint32_t kNone = UINT32_MAX;

    explicit ActiveSet(KernelRows& rows) : rows_(rows), packed_(rows.n_features()) {}

    std::size_t size() const { return samples_.size(); }
    const std::vector<std::uint32_t>& samples() const { return samples_; }
    std::uint32_t sample(std::size_t slot) const { return samples_[slot]; }
    std::uint32_t slot(std::size_t i) const { return slot_of_[i]; }
    bool holds(std::size_t i) const { return slot_of_[i] != kNone; }

    // Returns the kernel values of a member with all members, in slot order.
    // The values are valid until the next call of add().
    const double* row(std::size_t slot) const { return values_.data() + slot * capacity_; }
    // Computes the kernel values of any sample with all members.
    void evaluate(std::size_t i, double* out) { rows_.evaluate(i, samples_, packed_, out); }

    // Sets the number of samples to n; new samples are not members.
    void resize(std::size_t n) { slot_of_.resize(n, kNone); }
    // Makes sample i the member with the last slot. If it throws, nothing has changed.
    void add(std::size_t i);
    // Removes a member; the member with the last slot moves to the free slot.
    void drop(std::size_t slot);
    // Removes sample i, which must not be a member. The last sample is renumbered to i.
    void swap_remove(std::size_t i);
    void clear();

  private:
    void reserve(std::size_t capacity);
    double* values(std::size_t slot) { return values_.data() + slot * capacity_; }

    KernelRows& rows_;
    PackedRows<double> packed_;
    std::vector<std::uint32_t> samples_, slot_of_;
    std::size_t capacity_ = 0;
    std::vector<double, AlignedAllocator<double>> values_;  // rows of length capacity_, one per slot
};

}  // namespace steelyard
