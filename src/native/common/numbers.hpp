// Numeric constants.
#pragma once

#include <limits>

namespace steelyard {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace steelyard
