// SingleRowModel: fast path that predicts and learns one row at a time.
// The planes are recomputed when the sums have changed.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "proximal/exact_sums.hpp"
#include "proximal/planes.hpp"

namespace steelyard {

// Linear model of the given sums. The model stays valid until another object updates the sums.
// For another version or unusual input, its functions return false or nullopt; the caller then uses the general path.
class SingleRowModel {
  public:
    // `slots` contains the slots of the classes that have rows, in label order. `sums` must outlive the model.
    SingleRowModel(ExactSums& sums, std::uint64_t version, std::vector<std::int32_t> slots, const PlaneRule& rule);

    std::size_t n_features() const { return n_features_; }
    // Adds a row to a known slot. Returns false, without changes, if the general path is needed.
    bool learn(std::span<const double> row, std::int32_t slot);
    // Returns the index of the predicted class, or nullopt if the general path is needed.
    std::optional<std::size_t> winner(std::span<const double> row);

  private:
    bool solve();

    ExactSums& sums_;
    const std::vector<std::int32_t> slots_;
    const PlaneRule rule_;
    const std::size_t n_features_;
    std::atomic<std::uint64_t> version_;  // version of the sums for which the model is valid
    std::mutex mutex_;                    // protects the members below
    std::optional<std::uint64_t> solved_;
    std::vector<double> coef_, intercept_;
    std::vector<std::uint64_t> places_;
};

}  // namespace steelyard
