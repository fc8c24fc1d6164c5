// A proximal learner that is asked and taught one row at a time: planes that follow the sums.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "proximal/planes.hpp"
#include "proximal/shared_sums.hpp"

namespace steelyard {

// It follows the sums from one version on, as long as nothing but its own rows comes in. Whatever else happens to them,
// and whatever is out of the ordinary, it leaves to others.
class RowAnswers {
  public:
    // slots: of the classes that have rows, in the order of their labels. The sums outlive this.
    RowAnswers(ExactSums& sums, std::uint64_t version, std::vector<std::int32_t> slots, const PlaneRule& rule);

    std::size_t n_features() const { return n_features_; }
    // Adds a row to a slot that has some. False, and nothing has changed, if that is for others to do.
    bool learn(std::span<const double> row, std::int32_t slot);
    // The place, among the slots, of the class that a row belongs to; none if that is for others to say.
    std::optional<std::size_t> winner(std::span<const double> row);

  private:
    bool solve();

    ExactSums& sums_;
    const std::vector<std::int32_t> slots_;
    const PlaneRule rule_;
    const std::size_t n_features_;
    std::atomic<std::uint64_t> version_;  // of the sums
    std::mutex mutex_;                    // over what follows
    std::optional<std::uint64_t> solved_;
    std::vector<double> coef_, intercept_;
    std::vector<std::uint64_t> places_;
};

}  // namespace steelyard
