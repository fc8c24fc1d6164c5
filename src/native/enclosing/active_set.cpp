#include "enclosing/active_set.hpp"

#include <algorithm>

namespace steelyard {

void ActiveSet::reserve(std::size_t capacity) {
    if (capacity <= capacity_) return;
    // The capacity is a multiple of this number, so that every row starts at a cache line.
    constexpr std::size_t step = 8;
    const std::size_t grown = (std::max<std::size_t>(capacity, capacity_ + capacity_ / 2) + 32) / step * step;
    std::vector<double, AlignedAllocator<double>> moved(grown * grown);
    for (std::size_t slot = 0; slot < size(); ++slot)
        std::copy_n(row(slot), size(), moved.begin() + static_cast<std::ptrdiff_t>(slot * grown));
    values_ = std::move(moved);
    capacity_ = grown;
}

void ActiveSet::add(std::size_t i) {
    const std::size_t slot = size();
    reserve(slot + 1);
    evaluate(i, values(slot));
    for (std::size_t other = 0; other < slot; ++other) values(other)[slot] = row(slot)[other];
    values(slot)[slot] = rows_.diagonal(i);
    packed_.append(rows_.sample(i));
    samples_.push_back(static_cast<std::uint32_t>(i));
    slot_of_[i] = static_cast<std::uint32_t>(slot);
}

void ActiveSet::drop(std::size_t slot) {
    const std::size_t last = size() - 1;
    slot_of_[samples_[slot]] = kNone;
    if (slot != last) {
        std::copy_n(row(last), size(), values(slot));
        for (std::size_t other = 0; other < last; ++other) values(other)[slot] = row(other)[last];
        samples_[slot] = samples_[last];
        slot_of_[samples_[slot]] = static_cast<std::uint32_t>(slot);
    }
    samples_.pop_back();
    packed_.swap_remove(slot);
}

void ActiveSet::swap_remove(std::size_t i) {
    const std::size_t last = slot_of_.size() - 1;
    slot_of_[i] = slot_of_[last];
    if (slot_of_[i] != kNone) samples_[slot_of_[i]] = static_cast<std::uint32_t>(i);
    slot_of_.pop_back();
}

void ActiveSet::clear() {
    for (const std::uint32_t i : samples_) slot_of_[i] = kNone;
    samples_.clear();
    packed_.clear();
}

}  // namespace steelyard
