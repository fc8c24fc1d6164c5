// ExactSums: sufficient statistics shared by several threads.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "proximal/sufficient_statistics.hpp"

namespace steelyard {

// Statistics of all classes, with one mutex and one version number. Every update is atomic for readers.
class ExactSums {
  public:
    explicit ExactSums(ExactState state, std::uint64_t version = 0) : version_(version), state_(std::move(state)) {}

    // Returns the number of updates so far. Results derived from the state are valid for one version.
    std::uint64_t version() const {
        const std::scoped_lock lock(mutex_);
        return version_;
    }

    ExactState snapshot() const {
        const std::scoped_lock lock(mutex_);
        return state_;
    }
    // Returns a view of some classes. Sums that the view computes are also cached for the next view.
    // If the sums need much memory, the view keeps the pending rows of small classes instead of their sums.
    ExactView view(SlotGroups classes, unsigned n_threads) const {
        std::vector<std::int32_t> slots;
        for (const auto& each : classes) slots.insert(slots.end(), each.begin(), each.end());
        return {formed(slots, n_threads), std::move(classes), n_threads};
    }
    ExactView view(std::span<const std::int32_t> slots, unsigned n_threads) const {
        return {formed(slots, n_threads), slots, n_threads};
    }
    // Returns a view if the state still has the given version.
    std::optional<ExactView> view_at(std::uint64_t version, std::span<const std::int32_t> slots,
                                     unsigned n_threads) const {
        std::optional<ExactState> state;
        {
            const std::scoped_lock lock(mutex_);
            if (version != version_) return std::nullopt;
            state = formed_locked(slots, n_threads);
        }
        return ExactView(std::move(*state), slots, n_threads);
    }
    template <class Update>
    auto update(Update&& update) {
        const std::scoped_lock lock(mutex_);
        ++version_;  // also incremented if the update changes nothing, which only costs a recomputation
        return update(state_);
    }
    // Updates the state if it still has the given version, and sets `version` to the new version.
    // Returns false, without changes, if it has another version.
    template <class Update>
    bool update_at(std::uint64_t& version, Update&& update) {
        const std::scoped_lock lock(mutex_);
        if (version != version_) return false;
        update(state_);  // atomic: if the update throws, the state is unchanged
        version = ++version_;
        return true;
    }
    template <class Read>
    auto read(Read&& read) const {
        const std::scoped_lock lock(mutex_);
        return read(state_);
    }

  private:
    static constexpr std::size_t kMaxFormedBytes = std::size_t{1} << 26, kMaxFormedClasses = 30;

    ExactState formed(std::span<const std::int32_t> slots, unsigned n_threads) const {
        const std::scoped_lock lock(mutex_);
        return formed_locked(slots, n_threads);
    }
    ExactState formed_locked(std::span<const std::int32_t> slots, unsigned n_threads) const {
        const std::size_t bytes = slots.size() * 2 * sizeof(std::uint64_t) * Triangle::entries(state_.n_features + 1);
        if (slots.size() <= kMaxFormedClasses || bytes <= kMaxFormedBytes) form_sums(state_, slots, n_threads);
        return state_;
    }

    mutable std::mutex mutex_;
    std::uint64_t version_;
    mutable ExactState state_;  // mutable, because readers cache sums; the represented values do not change
};

}  // namespace steelyard
