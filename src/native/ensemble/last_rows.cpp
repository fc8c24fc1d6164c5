#include "ensemble/last_rows.hpp"

#include <algorithm>

namespace steelyard {

std::vector<std::int64_t> last_rows(std::span<const std::int64_t> codes, std::size_t n_last,
                                    std::span<const std::int64_t> limits) {
    const std::size_t n = codes.size(), begin = n - std::min(n_last, n);
    std::vector<std::int64_t> selected, left(limits.begin(), limits.end());
    // Number of classes of which older rows may be selected.
    auto n_open = std::ranges::count_if(left, [](std::int64_t limit) { return limit > 0; });
    for (std::size_t i = n; i-- > 0 && (i >= begin || n_open > 0);) {
        const auto code = static_cast<std::size_t>(codes[i]);
        const bool is_wanted = code < left.size() && left[code] > 0;
        if (is_wanted && --left[code] == 0) --n_open;
        if (is_wanted || i >= begin) selected.push_back(static_cast<std::int64_t>(i));
    }
    std::ranges::reverse(selected);
    return selected;
}

}  // namespace steelyard
