// The exact sums as Python holds them.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "steelyard/exact_sums.hpp"

namespace steelyard::bind {

// One state behind one lock: whoever reads sees it before or after a change, and each change is one call.
class ExactSums {
  public:
    explicit ExactSums(ExactState state, std::uint64_t version = 0) : version_(version), state_(std::move(state)) {}

    // Counts changes, so that whoever derives something can tell whether it is stale.
    std::uint64_t version() const {
        const std::scoped_lock lock(mutex_);
        return version_;
    }

    ExactState snapshot() const {
        const std::scoped_lock lock(mutex_);
        return state_;
    }
    // The sums of the classes in view are left ready here too, where the next look finds them. Of many classes most are
    // kept as their rows, which take less room.
    ExactView view(std::vector<std::int32_t> slots, unsigned n_threads) const {
        ExactState state = slots.size() <= kReadyClasses ? ready(slots, n_threads) : snapshot();
        return {std::move(state), std::move(slots), n_threads};
    }
    template <class Change>
    auto change(Change&& change) {
        const std::scoped_lock lock(mutex_);
        ++version_;  // also where nothing changes: one look too many does no harm
        return change(state_);
    }
    template <class Look>
    auto look(Look&& look) const {
        const std::scoped_lock lock(mutex_);
        return look(state_);
    }

  private:
    static constexpr std::size_t kReadyClasses = 30;

    ExactState ready(std::span<const std::int32_t> slots, unsigned n_threads) const {
        const std::scoped_lock lock(mutex_);
        make_ready(state_, slots, n_threads);
        return state_;
    }

    mutable std::mutex mutex_;
    std::uint64_t version_;
    mutable ExactState state_;  // looks may bring the same numbers into another form
};

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
