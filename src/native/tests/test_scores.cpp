#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "check.hpp"
#include "proximal/scores.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

struct Case {
    std::size_t n, d, n_planes;
};

// The number of features is near the vector width. Planes fill one panel, several panels, or several groups.
const Case kCases[] = {{1, 1, 1}, {5, 3, 1}, {131, 8, 1}, {5000, 54, 1}, {9, 17, 2}, {300, 54, 10}, {77, 5, 60}};

template <class T>
void check_case(const Case& c, const std::string& level) {
    const std::vector<T> X = random_values<T>(c.n * c.d, 1);
    const std::vector<double> normals = random_values<double>(c.n_planes * c.d, 2);
    const std::vector<double> intercepts = random_values<double>(c.n_planes, 3);
    const Rows<T> rows{X.data(), c.n, c.d};
    const Planes planes{normals, intercepts};
    std::vector<std::uint64_t> labels_of(c.n_planes == 1 ? 2 : c.n_planes);
    for (std::size_t p = 0; p < labels_of.size(); ++p) labels_of[p] = 100 + p;
    for (unsigned threads : {1u, 3u}) {
        std::vector<double> scores(c.n * c.n_planes);
        std::vector<std::uint64_t> labels(c.n);
        CHECK(linear_scores(rows, planes, scores.data(), threads), level);
        CHECK(linear_labels(rows, planes, labels_of, labels.data(), threads), level);
        for (std::size_t i = 0; i < c.n; ++i) {
            std::size_t winner = c.n_planes == 1 ? scores[i] > 0.0 : 0;
            for (std::size_t p = 0; p < c.n_planes; ++p) {
                double expected = intercepts[p];
                for (std::size_t k = 0; k < c.d; ++k)
                    expected += static_cast<double>(X[i * c.d + k]) * normals[p * c.d + k];
                CHECK(std::fabs(scores[i * c.n_planes + p] - expected) <= 1e-12 * static_cast<double>(c.d), level, c.n,
                      c.d);
                if (c.n_planes > 1 && scores[i * c.n_planes + p] > scores[i * c.n_planes + winner]) winner = p;
            }
            CHECK(labels[i] == 100 + winner, level, c.n, c.d, c.n_planes);
        }
    }
}

TEST(linear_scores_equal_products_at_every_level) {
    on_every_level([](const std::string& level) {
        for (const Case& c : kCases) check_case<double>(c, level), check_case<float>(c, level);
    });
}

TEST(nonfinite_score_returns_false) {
    const std::vector<double> normals{1.0, 1.0}, intercepts{0.0};
    for (double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
        std::vector<double> X(2 * 3000, 0.5), scores(3000);
        X[2 * 2999 + 1] = bad;
        CHECK(!linear_scores(Rows<double>{X.data(), 3000, 2}, Planes{normals, intercepts}, scores.data(), 2));
    }
}

}  // namespace
