// Kernel rows on demand, as many as a budget of memory holds; the one unused longest makes room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/kernels.hpp"

namespace steelyard {

class RowCache {
  public:
    // Rows are those of `rows` at the positions `members`; row i of the cache holds k(member i, every member).
    RowCache(const KernelSpec& spec, Rows<double> rows, std::span<const std::uint32_t> members,
             std::size_t budget_bytes);

    // Valid until the second next call.
    const double* row(std::size_t i);

    // Goes on with the members at the positions `kept` (ascending) only; what was computed for them is kept.
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
    std::vector<std::int32_t> slot_of_;  // -1: not computed
    std::uint64_t clock_ = 0;
};

}  // namespace steelyard
