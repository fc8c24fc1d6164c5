// Range checks of the slots of exact sums.
#pragma once

#include <cstdint>
#include <span>

#include "arrays.hpp"

namespace steelyard::bind {

inline void check_slots(std::span<const std::int32_t> slots) {
    for (const std::int32_t slot : slots)
        if (slot < -1 || slot >= (1 << 24)) throw nb::value_error("a slot is out of range");
}

inline void check_present(std::span<const std::int32_t> slots) {
    check_slots(slots);
    for (const std::int32_t slot : slots)
        if (slot < 0) throw nb::value_error("a slot is out of range");
}

}  // namespace steelyard::bind
