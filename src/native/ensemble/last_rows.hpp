// Selection of the last rows of a stream and of each class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace steelyard {

// Returns the ascending indices of the last `n_last` rows and of the last limits[code] rows of each class.
// Classes without a limit have the limit 0.
std::vector<std::int64_t> last_rows(std::span<const std::int64_t> codes, std::size_t n_last,
                                    std::span<const std::int64_t> limits);

}  // namespace steelyard
