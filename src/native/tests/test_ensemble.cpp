// Compares the loops of the ensemble with their definitions, and the SIMD levels with each other.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "check.hpp"
#include "common/portable_math.hpp"
#include "common/random.hpp"
#include "ensemble/last_rows.hpp"
#include "ensemble/logistic_fits.hpp"
#include "ensemble/online_calibration.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

// Arguments from 0 to 800 and their neighbours near 0.
std::vector<double> sizes() {
    std::vector<double> values{0.0, 1e-300, 1e-17, 0.88, 0.8813735870195429, 0.8813735870195431, 707.9, 708.1, 1e300};
    for (std::size_t i = 0; i < 3000; ++i) values.push_back(std::exp(16.0 * uniform_at(3, i) - 9.0));
    return values;
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

}  // namespace

TEST(portable_functions_agree_with_the_library_to_the_last_bits) {
    for (const double x : sizes()) {
        CHECK(std::abs(exp_of_negative(x) - std::exp(-x)) <= 4e-16 * std::exp(-x) + 1e-300, x);
        for (const double z : {x, -x}) {
            const double p = 1.0 / (1.0 + std::exp(-z)), loss = std::log1p(std::exp(-std::abs(z))) + std::max(-z, 0.0);
            CHECK(std::abs(portable_logistic(z) - p) <= 1e-15 * p + 1e-300, z);
            CHECK(std::abs(portable_log_loss(z) - loss) <= 1e-15 * loss + 1e-300, z);
        }
        if (x > 0.0) CHECK(std::abs(portable_log(x) - std::log(x)) <= 4e-16 * std::max(std::abs(std::log(x)), 1e-3), x);
    }
}

TEST(logistic_loops_have_the_bits_of_the_scalar_functions_at_every_level) {
    std::vector<double> x;
    for (const double size : sizes()) x.push_back(size), x.push_back(-size);
    on_every_level([&](const std::string& level) {
        for (const std::size_t n : {x.size(), std::size_t{13}, std::size_t{1}}) {
            std::vector<double> p(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(n)), loss = p, scalar_p,
                                                                                          scalar_loss;
            loops().logistic.logistic(p.data(), n);
            loops().logistic.log_loss(loss.data(), n);
            for (std::size_t i = 0; i < n; ++i)
                scalar_p.push_back(portable_logistic(x[i])), scalar_loss.push_back(portable_log_loss(x[i]));
            CHECK(same_bits(p, scalar_p) && same_bits(loss, scalar_loss), level, n);
        }
    });
}

TEST(logistic_sums_equal_their_definition_and_have_the_same_bits_at_every_level) {
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{8}, std::size_t{11}, std::size_t{1000}}) {
        const std::vector<double> x = random_values<double>(n, 5);
        std::array<double, 5> expected{};
        for (const double value : x) {
            const double p = 1.0 / (1.0 + std::exp(-(1.5 * value - 0.25))), h = p * (1.0 - p);
            expected[0] += p - 0.9, expected[1] += (p - 0.9) * value;
            expected[2] += h, expected[3] += h * value, expected[4] += h * value * value;
        }
        std::vector<double> first;
        on_every_level([&](const std::string& level) {
            const LogisticSums s = loops().logistic.sums(x.data(), n, 1.5, -0.25, 0.9);
            const std::vector<double> sums{s.error, s.error_x, s.h, s.h_x, s.h_xx};
            for (std::size_t k = 0; k < 5; ++k) CHECK(std::abs(sums[k] - expected[k]) <= 1e-12, level, n, k);
            if (first.empty()) first = sums;
            CHECK(same_bits(first, sums), level, n);
        });
    }
}

TEST(calibrations_and_correction_have_the_same_bits_at_every_level) {
    const std::size_t n = 700, n_experts = 5, n_positive = 60;
    std::vector<double> scores = random_values<double>(n * n_experts, 2);
    for (std::size_t i = 0; i < n_positive * n_experts; ++i) scores[i] += 1.0;
    for (std::size_t i = 0; i < scores.size(); i += 17) scores[i] = NAN;
    const auto candidates = std::make_unique<bool[]>(n_experts);
    std::fill_n(candidates.get(), n_experts, true);
    std::vector<std::int64_t> labels(n);
    std::fill_n(labels.begin(), n_positive, 1);
    std::vector<double> known(scores);
    for (double& score : known) score = std::isnan(score) ? 0.0 : score;
    std::vector<double> first;
    on_every_level([&](const std::string& level) {
        const auto fitted =
            fit_calibrations({{scores.data(), n, n_experts}, n_positive}, {candidates.get(), n_experts}, 2, 6.0);
        CHECK(fitted.size() == n_experts, level);
        std::vector<double> all(n_experts), priors(n_experts, 1.0);
        weigh_calibrations(fitted, n_positive, 0.1, {15.0, 5.0, 10.0}, 0.01, priors.data(), all.data());
        const std::vector<double> weights = all;
        for (const ExpertCalibration& one : fitted) {
            all.insert(all.end(), {one.middle, one.scale, one.below, one.above, one.bias, one.auc});
            all.insert(all.end(), one.log_odds.begin(), one.log_odds.end());
        }
        for (const double value : solve_correction({{known.data(), n, n_experts}, labels, weights, 0.1, 100.0}, 5))
            all.push_back(value);
        const PlattScaling scaling = platt_scaling({known.data(), n}, n_positive);
        all.insert(all.end(), {scaling.slope, scaling.bias});
        if (first.empty()) first = all;
        CHECK(same_bits(first, all), level);
    });
}

TEST(last_rows_are_those_of_the_stream_and_of_every_class) {
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{40}, std::size_t{300}}) {
        std::vector<std::int64_t> codes(n);
        for (std::size_t i = 0; i < n; ++i) codes[i] = uniform_at(4, i) < 0.1 ? 2 : i % 2;
        for (const std::size_t n_last : {std::size_t{0}, std::size_t{7}, std::size_t{1000}}) {
            for (const std::vector<std::int64_t>& limits :
                 {std::vector<std::int64_t>{}, {5}, {0, 3, 4}, {1000, 1000, 1000}, {2, 2, 2, 2}}) {
                std::map<std::int64_t, std::int64_t> newer;  // number of newer rows of each class
                std::vector<std::int64_t> expected;
                for (std::size_t i = n; i-- > 0;) {
                    const auto code = static_cast<std::size_t>(codes[i]);
                    const std::int64_t limit = code < limits.size() ? limits[code] : 0;
                    if (n - i <= n_last || newer[codes[i]] < limit)
                        expected.insert(expected.begin(), static_cast<std::int64_t>(i));
                    ++newer[codes[i]];
                }
                CHECK(last_rows(codes, n_last, limits) == expected, n, n_last, limits.size());
            }
        }
    }
}
