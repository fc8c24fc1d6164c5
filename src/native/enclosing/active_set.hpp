// Active set of a solver: some samples, with the kernel values of all pairs of them in double precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kernel_rows.hpp"

namespace steelyard {

// Samples whose coefficients the solver changes (members). Each member has one of the slots 0 .. size() - 1.
// All data that the solver reads between two passes over all samples is contiguous and in slot order.
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
    // The returned kernel values are valid until the next call of add().
    const double* row(std::size_t slot) const { return values_.data() + slot * capacity_; }
    // Computes the kernel values of any sample with all members.
    void evaluate(std::size_t i, double* out) { rows_.evaluate(i, samples_, packed_, out); }

    // Sets the number of samples to n. New samples are not members of the active set.
    void resize(std::size_t n) { slot_of_.resize(n, kNone); }
    // Adds sample i to the active set at the last slot. If the call throws, nothing has changed.
    void add(std::size_t i);
    // Removes a member. The member with the last slot moves to the free slot.
    void drop(std::size_t slot);
    // Removes sample i, which must not be a member of the active set. The last sample is renumbered to i.
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
