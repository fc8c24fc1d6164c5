// Compares SMO steps and boundary point loops with their definitions, for sizes around the vector width.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "alignment/rough_svm.hpp"
#include "check.hpp"
#include "simd/simd.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Samples {
    std::size_t n;
    std::vector<float> diagonal, up, down;
    std::vector<double> grown, fallen, e;

    explicit Samples(std::size_t size)
        : n(size),
          diagonal(size, 2.0f),
          up(random_values<float>(size, 1)),
          down(random_values<float>(size, 2)),
          grown(size),
          fallen(size),
          e(random_values<double>(size, 3)) {
        for (std::size_t i = 0; i < n; ++i) {
            grown[i] = i % 3 == 1 ? kInfinity : 0.0;
            fallen[i] = i % 4 == 2 ? kInfinity : 0.0;
        }
    }
    PairSamples view() { return {diagonal.data(), grown.data(), fallen.data(), e.data(), n}; }
};

bool is_near(double a, double b, double tolerance) { return std::abs(a - b) <= tolerance * (1.0 + std::abs(b)); }

}  // namespace

TEST(pair_step_matches_its_definition_on_every_level) {
    on_every_level([](const std::string& level) {
        for (std::size_t n = 1; n <= 40; ++n) {
            Samples samples(n);
            std::vector<double> expected = samples.e;
            for (std::size_t i = 0; i < n; ++i)
                expected[i] += 0.3 * (static_cast<double>(samples.up[i]) - static_cast<double>(samples.down[i]));
            const std::size_t at = loops().pair.step(samples.view(), 0.3, samples.up.data(), samples.down.data());
            for (std::size_t i = 0; i < n; ++i) {
                CHECK(is_near(samples.e[i], expected[i], 1e-14), level, n, i);
                CHECK(samples.grown[i] > 0.0 || samples.e[at] <= samples.e[i], level, n, i);
            }
            CHECK(at < n && samples.grown[at] == 0.0, level, n);
            std::fill(samples.grown.begin(), samples.grown.end(), kInfinity);
            CHECK(loops().pair.step(samples.view(), 0.0, samples.up.data(), samples.up.data()) == n, level, n);
        }
    });
}

TEST(pair_partner_has_the_largest_gain_on_every_level) {
    on_every_level([](const std::string& level) {
        for (std::size_t n = 1; n <= 40; ++n) {
            Samples samples(n);
            const auto up =
                static_cast<std::size_t>(std::min_element(samples.e.begin(), samples.e.end()) - samples.e.begin());
            double best = 0.0, widest = 0.0;
            const auto gain = [&](std::size_t j) {
                const double difference = samples.e[j] - samples.e[up] - samples.fallen[j];
                return difference > 0.0 ? difference * difference / (4.0 - 2.0 * static_cast<double>(samples.up[j]))
                                        : 0.0;
            };
            for (std::size_t j = 0; j < n; ++j) {
                best = std::max(best, gain(j));
                widest = std::max(widest, samples.e[j] - samples.e[up] - samples.fallen[j]);
            }
            const Partner found = loops().pair.partner(samples.view(), up, samples.up.data());
            CHECK((found.at == n) == (best == 0.0), level, n);
            CHECK(found.at == n || is_near(gain(found.at), best, 1e-5), level, n);
            CHECK(is_near(found.difference, widest, 1e-6), level, n);
        }
    });
}

TEST(pick_applies_both_factors_on_every_level) {
    on_every_level([](const std::string& level) {
        const std::vector<double> row = random_values<double>(90, 4), factor = random_values<double>(40, 5);
        for (std::size_t n = 0; n <= 40; ++n) {
            std::vector<std::int32_t> places(n);
            for (std::size_t i = 0; i < n; ++i) places[i] = static_cast<std::int32_t>((7 * i) % 90);
            std::vector<float> out(n);
            loops().pair.pick(row.data(), places.data(), 1.5, factor.data(), out.data(), n);
            for (std::size_t i = 0; i < n; ++i)
                CHECK(is_near(out[i], 1.5 * factor[i] * row[static_cast<std::size_t>(places[i])], 1e-6), level, n, i);
        }
    });
}

TEST(boundary_raise_matches_its_definition_on_every_level) {
    on_every_level([](const std::string& level) {
        const auto rare = random_values<double>(40, 6), other = random_values<double>(40, 7);
        const auto self = random_values<double>(40, 8), factor = random_values<double>(40, 9);
        const BumpRows bump{rare.data(), other.data(), 0.6, 1.1, 1.0, 2.0};
        for (std::size_t n = 0; n <= 40; ++n) {
            std::vector<double> out(n, -1.0);
            loops().boundary.raise(bump, self.data(), factor.data(), out.data(), n);
            for (std::size_t x = 0; x < n; ++x) {
                const double squared = self[x] + 1.0 - factor[x] * (0.6 * rare[x] + 1.1 * other[x]);
                CHECK(is_near(out[x], std::max(-1.0, -2.0 * std::max(0.0, squared)), 1e-12), level, n, x);
            }
        }
    });
}

TEST(solve_roughly_is_optimal_outside_the_initial_working_set) {
    constexpr std::size_t n = 60;
    const std::vector<double> X = random_values<double>(n * 3, 11);
    std::vector<double> K(n * n), signs(n), factor(n, 1.0), bounds(n, 2.0), z(n), scores(n);
    for (std::size_t i = 0; i < n; ++i) {
        signs[i] = i % 5 == 0 ? 1.0 : -1.0;
        for (std::size_t j = 0; j < n; ++j) {
            double squared = 0.0;
            for (std::size_t k = 0; k < 3; ++k) squared += std::pow(X[i * 3 + k] - X[j * 3 + k], 2);
            K[i * n + j] = std::exp(-squared);
        }
    }
    bool working[n] = {};
    std::fill_n(working, 12, true);
    bounds[30] = 0.0;  // this sample is not used
    RoughMachine machine{factor.data(), bounds.data(), working, z.data(), scores.data()};
    solve_roughly({K.data(), signs.data(), n}, &machine, 1, {1e-3, 3e-3}, 1);
    CHECK(std::abs(std::accumulate(z.begin(), z.end(), 0.0)) < 1e-9, n);
    CHECK(z[30] == 0.0, n);
    for (std::size_t i = 0; i < n; ++i) {
        const double margin = signs[i] * scores[i], alpha = signs[i] * z[i];
        CHECK(alpha >= 0.0 && alpha <= bounds[i], i);
        CHECK(bounds[i] == 0.0 || alpha > 0.0 || margin > 1.0 - 5e-3, i);
        CHECK(alpha == 0.0 || alpha == bounds[i] || std::abs(margin - 1.0) < 5e-3, i);
        CHECK(bounds[i] == 0.0 || alpha < bounds[i] || margin < 1.0 + 5e-3, i);
    }
}
