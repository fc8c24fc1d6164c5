// The few samples that a solver moves, side by side: their kernel values with each other, all in double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kernel_rows.hpp"

namespace steelyard {

// Members have slots 0 .. size() - 1. Everything that is looked at between two passes over all samples is in here,
// in order, whatever numbers the samples have.
class ActiveSet {
  public:
    static constexpr std::uint32_t kNone = UINT32_MAX;

    explicit ActiveSet(KernelRows& rows) : rows_(rows), packed_(rows.n_features()) {}

    std::size_t size() const { return samples_.size(); }
    const std::vector<std::uint32_t>& samples() const { return samples_; }
    std::uint32_t sample(std::size_t slot) const { return samples_[slot]; }
    std::uint32_t slot(std::size_t i) const { return slot_of_[i]; }
    bool holds(std::size_t i) const { return slot_of_[i] != kNone; }

    // Kernel values of a member with all members, by slot. Valid until the next add.
    const double* row(std::size_t slot) const { return values_.data() + slot * capacity_; }
    // Kernel values of any sample with all members.
    void evaluate(std::size_t i, double* out) { rows_.evaluate(i, samples_, packed_, out); }

    // There are n samples now; new ones are no members.
    void resize(std::size_t n) { slot_of_.resize(n, kNone); }
    // The sample becomes the member with the last slot. When it throws, nothing has changed.
    void add(std::size_t i);
    // The member with the last slot takes the one that becomes free.
    void drop(std::size_t slot);
    // Sample i goes, and the last sample takes its number; i is no member.
    void swap_remove(std::size_t i);
    void clear();

  private:
    void reserve(std::size_t capacity);
    double* values(std::size_t slot) { return values_.data() + slot * capacity_; }

    KernelRows& rows_;
    PackedRows<double> packed_;
    std::vector<std::uint32_t> samples_, slot_of_;
    std::size_t capacity_ = 0;
    std::vector<double, AlignedAllocator<double>> values_;  // rows of capacity_
};

}  // namespace steelyard
