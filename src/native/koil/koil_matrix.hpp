// Kernel values of the support vectors of a KOIL machine with each other, kept while vectors come and are replaced.
#pragma once

#include <array>
#include <cstddef>

#include "common/rows.hpp"
#include "simd/loops_online.hpp"

namespace steelyard {

// Two sides of `capacity` slots each; slot `at` of side s is at - s * capacity. A new vector's row is written at once,
// its column only when someone asks for it, a group of slots at a time: one by one, the entries of a column lie in as
// many cache lines. Above a size that no cache holds nothing is kept, and whoever needs a row evaluates it.
template <class Real>
class KoilMatrix {
  public:
    static constexpr std::size_t kGroup = kLineOf<Real>;  // slots of a cache line; a side begins on one
    using Counts = std::array<std::size_t, 2>;

    static constexpr std::size_t rounded_up(std::size_t n) { return (n + kGroup - 1) / kGroup * kGroup; }

    bool is_kept() const { return 2 * capacity_ <= kMostSlots; }
    // Slots move to where the sides begin now; columns must be complete.
    void grow(std::size_t capacity, const Counts& counts);
    // Values of the vector in a slot with all slots. Those with vectors that came by write_row() since may be missing
    // until complete_row() or complete_columns().
    Real* row(std::size_t at) { return values_.data() + at * stride_; }
    // A vector stands in a slot from now on; its values with all slots, itself included.
    void write_row(std::size_t at, const Real* values, const Counts& counts);
    // The same, and nobody has to wait for the column.
    void write_row_and_column(std::size_t at, const Real* values, const Counts& counts);
    // Fills in the values of the vector in a slot with those that came since.
    void complete_row(std::size_t at);
    void complete_columns(const Counts& counts);

  private:
    // So few columns cost less one by one than the group they lie in.
    static constexpr std::size_t kFewColumns = 2;
    static constexpr std::size_t kMostSlots = 4096;  // 128 MB of doubles

    void complete_one_by_one(const Counts& counts);

    std::size_t capacity_ = 0, stride_ = 0;
    AlignedVector<Real> values_;
    // Slots, of one side, whose values are not yet in the rows of the other vectors.
    std::size_t fresh_begin_ = 0, fresh_end_ = 0;
};

}  // namespace steelyard
