#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "check.hpp"
#include "enclosing/body_distances.hpp"
#include "enclosing/enclosing.hpp"
#include "kernels/kernels.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

constexpr std::size_t kNoCache = 0, kRoomyCache = 1 << 26;

struct Cloud {
    std::size_t n, d;
    std::vector<double> values, bounds;

    Cloud(std::size_t n, std::size_t d, double bound, unsigned seed)
        : n(n), d(d), values(random_values<double>(n * d, seed)), bounds(n, bound) {}
    Rows<double> rows() const { return {values.data(), n, d}; }
    Ball solve(const KernelSpec& spec, std::size_t cache_bytes, unsigned n_threads = 1) const {
        return enclosing_ball({spec, rows(), bounds}, {1e-8, cache_bytes, 10'000'000, n_threads});
    }
};

void check_optimal(const Cloud& cloud, const KernelSpec& spec, const Ball& ball, const std::string& where) {
    const std::size_t n = cloud.n;
    std::vector<double> K(n * n);
    kernel_matrix(spec, cloud.rows(), K.data(), n, 1);
    double centre = 0.0, sum = 0.0;
    std::vector<double> products(n, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j) products[i] += K[i * n + j] * ball.alpha[j];
        centre += ball.alpha[i] * products[i];
        sum += ball.alpha[i];
    }
    CHECK(std::fabs(sum - 1.0) < 1e-12, where, sum);
    const double slack = 1e-7 * ball.squared_radius + 1e-12;
    for (std::size_t i = 0; i < n; ++i) {
        const double distance = K[i * n + i] - 2.0 * products[i] + centre, alpha = ball.alpha[i];
        CHECK(alpha >= 0.0 && alpha <= cloud.bounds[i], where, i, alpha);
        if (alpha < cloud.bounds[i]) CHECK(distance <= ball.squared_radius + slack, where, i, distance);
        if (alpha > 0.0) CHECK(distance >= ball.squared_radius - slack, where, i, distance);
    }
}

}  // namespace

TEST(enclosing_ball_satisfies_the_optimality_conditions) {
    const KernelSpec specs[] = {{KernelKind::linear}, {KernelKind::rbf, 0.3}, {KernelKind::polynomial, 0.5, 1.0, 2}};
    on_every_level([&](const std::string& level) {
        for (const KernelSpec& spec : specs)
            for (const std::size_t n : {1, 2, 3, 17, 64, 433})
                for (const double bound : {1.0, 1.2 / static_cast<double>(n), 10.0 / static_cast<double>(n)}) {
                    const Cloud cloud(n, 3, bound, 7);
                    check_optimal(cloud, spec, cloud.solve(spec, kRoomyCache), text(level, n, bound));
                }
    });
}

TEST(enclosing_ball_is_bitwise_independent_of_cache_and_threads) {
    const Cloud cloud(2100, 5, 20.0 / 2100, 3);
    const KernelSpec spec{KernelKind::rbf, 0.5};
    const Ball roomy = cloud.solve(spec, kRoomyCache);
    for (const Ball& other : {cloud.solve(spec, kNoCache), cloud.solve(spec, kRoomyCache, 3)}) {
        CHECK(roomy.alpha == other.alpha, other.steps);
        CHECK(roomy.squared_radius == other.squared_radius, other.squared_radius);
    }
}

TEST(enclosing_ball_with_many_free_weights_converges_with_shrinking) {
    const Cloud cloud(1500, 2, 5.0 / 1500, 5);
    const KernelSpec spec{KernelKind::rbf, 3.0};
    const Ball ball = cloud.solve(spec, kRoomyCache);
    CHECK(ball.steps > 2000, ball.steps);
    check_optimal(cloud, spec, ball, "shrunk");
}

TEST(body_distances_match_plain_sums) {
    on_every_level([](const std::string& level) {
        for (const std::size_t n : {1, 9, 70, 300}) {
            constexpr std::size_t d = 6;
            const std::vector<double> X = random_values<double>(n * d, 1), axes = random_values<double>(11 * d, 2),
                                      offsets = random_values<double>(11, 3);
            // The second body has no axes, so the distance of every row to it is 0.
            const std::size_t starts[] = {0, 6, 6, 11};
            std::vector<double> ellipsoids(n * 3), spheres(n * 11);
            ellipsoid_distances({X.data(), n, d}, {axes.data(), 11, d}, offsets, starts, ellipsoids.data(), 2);
            sphere_distances({X.data(), n, d}, {axes.data(), 11, d}, spheres.data(), 2);
            for (std::size_t i = 0; i < n; ++i) {
                double sums[3] = {};
                for (std::size_t k = 0; k < 11; ++k) {
                    double product = -offsets[k], squared = 0.0;
                    for (std::size_t c = 0; c < d; ++c) {
                        const double x = X[i * d + c], a = axes[k * d + c];
                        product += x * a;
                        squared += (x - a) * (x - a);
                    }
                    sums[k < 6 ? 0 : 2] += product * product;
                    CHECK(std::fabs(spheres[i * 11 + k] - squared) < 1e-12 * (1.0 + squared), level, n, i, k);
                }
                for (std::size_t b = 0; b < 3; ++b)
                    CHECK(std::fabs(ellipsoids[i * 3 + b] - sums[b]) < 1e-12 * (1.0 + sums[b]), level, n, i, b);
            }
        }
    });
}

TEST(near_least_counts_products_near_the_minimum) {
    on_every_level([](const std::string& level) {
        for (std::size_t n = 1; n <= 40; ++n) {
            std::vector<double> a = random_values<double>(n, static_cast<unsigned>(n)), b(n, 2.0);
            for (double& value : a) value *= value;
            const auto least = static_cast<std::size_t>(std::min_element(a.begin(), a.end()) - a.begin());
            NearLeast near = loops().ball.near_least(a.data(), b.data(), 1.0 + 1e-14, n);
            CHECK(near.count == 1 && near.at == least, level, n, near.count, near.at);
            a[(least + 3) % n] = a[least];
            near = loops().ball.near_least(a.data(), b.data(), 1.0 + 1e-14, n);
            CHECK(near.count == ((least + 3) % n == least ? 1 : 2), level, n, near.count);
        }
    });
}

TEST(perhaps_least_counts_candidates_within_rounding_errors) {
    constexpr std::size_t n = 16;
    const std::vector<double> factors(n, 1.0);
    on_every_level([&](const std::string& level) {
        std::vector<double> products = random_values<double>(n, 3), offsets(n, 2.0);
        const auto least =
            static_cast<std::size_t>(std::min_element(products.begin(), products.end()) - products.begin());
        const auto ask = [&](double doubt) {
            return loops().ball.perhaps_least(products.data(), factors.data(), offsets.data(), 1.0, doubt, n);
        };
        NearLeast near = ask(1e-12);
        CHECK(near.count == 1 && near.at == least, level, near.count, near.at);
        CHECK(ask(10.0).count == n, level);
        offsets[(least + 5) % n] = std::numeric_limits<double>::quiet_NaN();
        near = ask(1e-12);
        CHECK(near.count == 2, level, near.count);
    });
}

TEST(nearest_body_has_the_smallest_ratio) {
    constexpr std::size_t n = 70, d = 13, m = 11;
    const std::vector<double> X = random_values<double>(n * d, 1), centers = random_values<double>(m * d, 2);
    std::vector<double> radii(m, 1.5);
    radii[4] = 0.5;
    on_every_level([&](const std::string& level) {
        std::vector<double> squared(n * m), ratios(n);
        std::vector<std::int64_t> bodies(n);
        sphere_distances({X.data(), n, d}, {centers.data(), m, d}, squared.data(), 1);
        nearest_sphere({X.data(), n, d}, {centers.data(), m, d}, radii, {bodies.data(), ratios.data()}, 2);
        for (std::size_t i = 0; i < n; ++i) {
            std::size_t best = 0;
            const auto ratio = [&](std::size_t k) { return std::sqrt(squared[i * m + k]) / radii[k]; };
            for (std::size_t k = 1; k < m; ++k)
                if (ratio(k) < ratio(best)) best = k;
            CHECK(bodies[i] == static_cast<std::int64_t>(best) && ratios[i] == ratio(best), level, i);
        }
    });
}
