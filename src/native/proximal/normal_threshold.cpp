#include "proximal/normal_threshold.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace steelyard {

namespace {

// log(phi(x) / Phi(x)) and its derivative, where phi and Phi are the density and distribution function of N(0, 1).
// Logarithms are used, because phi / Phi of both classes underflows at the best threshold between two distant classes.
struct LogHazard {
    double value, fall;

    explicit LogHazard(double x) {
        constexpr double far = -5.0;
        constexpr int terms = 24;  // number of terms of the continued fraction, enough for double precision
        if (x < far) {
            double rest = 0.0;
            for (int k = terms; k > 0; --k) rest = k / (rest - x);
            fall = rest;  // phi / Phi + x, computed without cancellation
            value = std::log(rest - x);
        } else {
            value = -0.5 * x * x - std::log(std::erfc(-x / std::numbers::sqrt2)) + kLogOfRoot;
            fall = std::exp(value) + x;
        }
    }

  private:
    static constexpr double kLogOfRoot = -0.22579135264472738;  // log(sqrt(2 / pi))
};

}  // namespace

// Newton's method with bisection as a safeguard: very different deviations can let a Newton step leave the interval.
// The objective log Phi((p - t) / s) + log Phi((t - n) / r) is concave in t, with means p, n and deviations s, r.
// At the maximum, the values phi / (Phi * deviation) of both classes are equal.
double normal_gmean_threshold(const NormalScores& negative, const NormalScores& positive) {
    const double gap = positive.mean - negative.mean, middle = 0.5 * (positive.mean + negative.mean);
    if (!(gap > 0.0)) return middle;
    // A deviation of zero would make the derivative infinite, so the smallest deviation is a millionth of the gap.
    const double least = std::max(1e-6 * gap, std::sqrt(std::numeric_limits<double>::min()));
    const double spread_pos = std::max(std::sqrt(positive.variance), least);
    const double spread_neg = std::max(std::sqrt(negative.variance), least);
    const double reach = 10.0 * std::max(spread_pos, spread_neg), log_ratio = std::log(spread_pos / spread_neg);
    double low = negative.mean - reach, high = positive.mean + reach;
    double threshold = negative.mean + gap * (spread_neg / (spread_neg + spread_pos)), last_step = high - low;
    for (int n_steps = 0; n_steps < 200; ++n_steps) {
        const LogHazard below((threshold - negative.mean) / spread_neg),
            above((positive.mean - threshold) / spread_pos);
        const double excess = below.value - above.value + log_ratio;
        (excess > 0.0 ? low : high) = threshold;
        double next = threshold + excess / (below.fall / spread_neg + above.fall / spread_pos);
        if (!(next > low && next < high) || std::abs(next - threshold) > 0.5 * last_step) next = 0.5 * (low + high);
        last_step = std::abs(next - threshold);
        if (last_step <= std::numeric_limits<double>::epsilon() * std::max(std::abs(threshold), std::abs(next)))
            return next;
        threshold = next;
    }
    return threshold;
}

}  // namespace steelyard
