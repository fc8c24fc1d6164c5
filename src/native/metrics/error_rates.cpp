#include "metrics/error_rates.hpp"

#include <algorithm>
#include <cmath>

#include "common/numbers.hpp"
#include "common/sort.hpp"

namespace steelyard {

ErrorRates error_rates(std::vector<double> positive, std::vector<double> negative) {
    sort_ascending(positive);
    sort_ascending(negative);
    const auto n_positive = static_cast<double>(positive.size()), n_negative = static_cast<double>(negative.size());
    ErrorRates rates{{}, {0.0}, {1.0}};
    std::vector<double> values;  // distinct scores
    for (std::size_t p = 0, n = 0; p < positive.size() || n < negative.size();) {
        const double value = n == negative.size()                                ? positive[p]
                             : p == positive.size() || negative[n] < positive[p] ? negative[n]
                                                                                 : positive[p];
        while (p < positive.size() && !(positive[p] > value)) ++p;
        while (n < negative.size() && !(negative[n] > value)) ++n;
        values.push_back(value);
        rates.misses.push_back(static_cast<double>(p) / n_positive);
        rates.alarms.push_back(std::max(1.0 - static_cast<double>(n) / n_negative, 0.0));
    }
    rates.thresholds.push_back(std::nextafter(values.front(), -kInfinity));
    for (std::size_t k = 0; k + 1 < values.size(); ++k) rates.thresholds.push_back(0.5 * (values[k] + values[k + 1]));
    rates.thresholds.push_back(values.back());
    return rates;
}

}  // namespace steelyard
