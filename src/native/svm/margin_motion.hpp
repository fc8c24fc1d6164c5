// The coefficients of the margin set while it moves along a direction, up to where one of them reaches a bound.
#pragma once

#include <cstddef>
#include <vector>

#include "svm/svm_state.hpp"

namespace steelyard {

// Coefficients and bounds stand side by side, in the order of the margin set.
class MarginMotion {
  public:
    // Which way and how fast; to be set before a step.
    std::vector<double> direction;

    void take_out(const SvmState& state);
    void put_back(SvmState& state) const;
    // The largest step along the direction, up to limit; hits() then names the members that stop it.
    double first_hit(double limit);
    const std::vector<std::size_t>& hits() const { return hits_; }
    void advance(double step);
    // The bound that a member is nearer to.
    double nearer_bound(std::size_t member) const;
    void drop(std::size_t member);

  private:
    std::vector<double> z_, lower_, upper_, room_;
    std::vector<std::size_t> hits_;
};

}  // namespace steelyard
