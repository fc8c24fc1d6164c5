// Kernel matrix of the support vectors of a KOIL model, updated when vectors are added or replaced.
#pragma once

#include <array>
#include <cstddef>

#include "common/rows.hpp"
#include "simd/loops_online.hpp"

namespace steelyard {

// Kernel matrix of the support vectors of one model. It has `capacity` slots for each class (side).
// Slot s * capacity + i is position i of side s.
// The row of a new support vector is written immediately.
// Columns are written on demand for groups of slots, because the entries of a column are in different cache lines.
// A matrix that is too large for the cache is not stored, and rows are computed on demand.
template <class Real>
class KoilMatrix {
  public:
    // Number of slots per cache line; each side starts at a cache line.
    static constexpr std::size_t kGroup = kLineOf<Real>;
    using Counts = std::array<std::size_t, 2>;

    static constexpr std::size_t rounded_up(std::size_t n) { return (n + kGroup - 1) / kGroup * kGroup; }

    bool is_kept() const { return 2 * capacity_ <= kMaxSlots; }
    // Moves slots to the new start of each side. All columns must be complete before the call.
    void grow(std::size_t capacity, const Counts& counts);
    // Returns the kernel values of the support vector in one slot with all slots.
    // Kernel values with vectors added by write_row() are missing until complete_row() or complete_columns() is called.
    Real* row(std::size_t at) { return values_.data() + at * stride_; }
    // Stores a new support vector in a slot, given its kernel values with all slots, including itself.
    void write_row(std::size_t at, const Real* values, const Counts& counts);
    // Stores a new support vector as write_row() does, and writes its column immediately.
    void write_row_and_column(std::size_t at, const Real* values, const Counts& counts);
    // Computes the missing values of a row.
    void complete_row(std::size_t at);
    void complete_columns(const Counts& counts);

  private:
    // Up to this number of columns, writing single columns is faster than writing a group of columns.
    static constexpr std::size_t kMaxSingleColumns = 2;
    // Maximum number of slots of a stored matrix, which has 128 MB of doubles.
    static constexpr std::size_t kMaxSlots = 4096;

    void complete_one_by_one(const Counts& counts);

    std::size_t capacity_ = 0, stride_ = 0;
    AlignedVector<Real> values_;
    // Slots of one side whose kernel values are not yet in the rows of the other vectors.
    std::size_t fresh_begin_ = 0, fresh_end_ = 0;
};

}  // namespace steelyard
