// Exact sums that several threads hold.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "proximal/exact_sums.hpp"

namespace steelyard {

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
    // The sums of the classes in view are left ready here too, where the next look finds them, unless they would take
    // much room: classes with few rows are kept as these, which take less.
    ExactView view(SlotGroups classes, unsigned n_threads) const {
        std::vector<std::int32_t> slots;
        for (const auto& each : classes) slots.insert(slots.end(), each.begin(), each.end());
        return {ready(slots, n_threads), std::move(classes), n_threads};
    }
    ExactView view(std::span<const std::int32_t> slots, unsigned n_threads) const {
        return {ready(slots, n_threads), slots, n_threads};
    }
    // The same, if it is still the state of that version.
    std::optional<ExactView> view_at(std::uint64_t version, std::span<const std::int32_t> slots,
                                     unsigned n_threads) const {
        std::optional<ExactState> state;
        {
            const std::scoped_lock lock(mutex_);
            if (version != version_) return std::nullopt;
            state = ready_locked(slots, n_threads);
        }
        return ExactView(std::move(*state), slots, n_threads);
    }
    template <class Change>
    auto change(Change&& change) {
        const std::scoped_lock lock(mutex_);
        ++version_;  // also where nothing changes: one look too many does no harm
        return change(state_);
    }
    // The same, if it is still the state of that version; whether it was. The version follows.
    template <class Change>
    bool change_at(std::uint64_t& version, Change&& change) {
        const std::scoped_lock lock(mutex_);
        if (version != version_) return false;
        change(state_);  // all of it, or it throws
        version = ++version_;
        return true;
    }
    template <class Look>
    auto look(Look&& look) const {
        const std::scoped_lock lock(mutex_);
        return look(state_);
    }

  private:
    static constexpr std::size_t kReadyBytes = std::size_t{1} << 26, kReadyClasses = 30;

    ExactState ready(std::span<const std::int32_t> slots, unsigned n_threads) const {
        const std::scoped_lock lock(mutex_);
        return ready_locked(slots, n_threads);
    }
    ExactState ready_locked(std::span<const std::int32_t> slots, unsigned n_threads) const {
        const std::size_t bytes = slots.size() * 2 * sizeof(std::uint64_t) * Triangle::entries(state_.n_features + 1);
        if (slots.size() <= kReadyClasses || bytes <= kReadyBytes) make_ready(state_, slots, n_threads);
        return state_;
    }

    mutable std::mutex mutex_;
    std::uint64_t version_;
    mutable ExactState state_;  // looks may bring the same numbers into another form
};

}  // namespace steelyard
