// LRU cache of kernel rows with a memory limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.hpp"

namespace steelyard {

class RowCache {
  public:
    // Row i contains the kernel values of member i with all members, where member i is row members[i] of `rows`.
    RowCache(const KernelSpec& spec, Rows<double> rows, std::span<const std::uint32_t> members,
             std::size_t budget_bytes);

    // Returns row i. The pointer is valid until the second next call of row().
    const double* row(std::size_t i);

    // Restricts the cache to the members at the positions `kept` (ascending) and keeps their cached values.
    void narrow(std::span<const std::uint32_t> kept);

  private:
    struct Slot {
        AlignedBuffer<double> values;
        std::size_t owner = 0;
        std::uint64_t last_use = 0;
    };
    std::size_t capacity() const;
    std::size_t free_slot();

    KernelSpec spec_;
    Rows<double> rows_;
    std::vector<std::uint32_t> members_;
    PackedRows<double> packed_;
    std::size_t budget_bytes_;
    std::vector<Slot> slots_;
    std::vector<std::int32_t> slot_of_;  // cache slot of each row, -1 if the row is not cached
    std::uint64_t clock_ = 0;
};

}  // namespace steelyard
