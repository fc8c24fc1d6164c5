// MarginMotion: moves the coefficients of the margin set along a direction until one of them reaches a bound.
#pragma once

#include <cstddef>
#include <vector>

#include "svm/svm_state.hpp"

namespace steelyard {

// One move of the margin set. Coefficients and bounds are in the order of the margin set.
class MarginMotion {
  public:
    // Direction in which the coefficients of the margin set move.
    std::vector<double> direction;

    void take_out(const SvmState& state);
    void put_back(SvmState& state) const;
    // Returns the largest step along the direction, at most `limit`.
    // After the call, hits() returns the members that reach a bound.
    double first_hit(double limit);
    const std::vector<std::size_t>& hits() const { return hits_; }
    void advance(double step);
    // Returns the bound of a member that is nearer to its coefficient.
    double nearer_bound(std::size_t member) const;
    void drop(std::size_t member);

  private:
    std::vector<double> z_, lower_, upper_, room_;
    std::vector<std::size_t> hits_;
};

}  // namespace steelyard
