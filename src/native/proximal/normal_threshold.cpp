#include "proximal/normal_threshold.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace steelyard {

namespace {

// log(phi(x) / Phi(x)) and how fast it falls. The logarithm, because between two classes that lie far apart both
// quotients are too small for a number, where the best cut is too.
struct LogHazard {
    double value, fall;

    explicit LogHazard(double x) {
        constexpr double far = -5.0;
        constexpr int terms = 24;  // of the continued fraction: beyond double precision from there on
        if (x < far) {
            double rest = 0.0;
            for (int k = terms; k > 0; --k) rest = k / (rest - x);
            fall = rest;  // phi / Phi + x, without the difference of two large numbers
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

// The logarithm of the product, log Phi((p - t) / s) + log Phi((t - n) / r), is concave in t: its slope is zero where
// the logarithms of both quotients phi / Phi, each over its spread, are equal. Newton's steps find that place, and an
// interval that is halved holds them where spreads are so different that a step goes astray.
double normal_gmean_cut(const NormalScores& negative, const NormalScores& positive) {
    const double gap = positive.mean - negative.mean, middle = 0.5 * (positive.mean + negative.mean);
    if (!(gap > 0.0)) return middle;
    // Classes without spread would make the slope infinite; a millionth of the gap is as good as none.
    const double least = std::max(1e-6 * gap, std::sqrt(std::numeric_limits<double>::min()));
    const double spread_pos = std::max(std::sqrt(positive.variance), least);
    const double spread_neg = std::max(std::sqrt(negative.variance), least);
    const double reach = 10.0 * std::max(spread_pos, spread_neg), log_ratio = std::log(spread_pos / spread_neg);
    double low = negative.mean - reach, high = positive.mean + reach;
    double cut = negative.mean + gap * (spread_neg / (spread_neg + spread_pos)), last_step = high - low;
    for (int n_steps = 0; n_steps < 200; ++n_steps) {
        const LogHazard below((cut - negative.mean) / spread_neg), above((positive.mean - cut) / spread_pos);
        const double excess = below.value - above.value + log_ratio;
        (excess > 0.0 ? low : high) = cut;
        double next = cut + excess / (below.fall / spread_neg + above.fall / spread_pos);
        if (!(next > low && next < high) || std::abs(next - cut) > 0.5 * last_step) next = 0.5 * (low + high);
        last_step = std::abs(next - cut);
        if (last_step <= std::numeric_limits<double>::epsilon() * std::max(std::abs(cut), std::abs(next))) return next;
        cut = next;
    }
    return cut;
}

}  // namespace steelyard
