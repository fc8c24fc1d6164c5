// Compares Shapley values of product kernels with sums over all sets of columns.
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "kernels/product_shapley.hpp"

using namespace steelyard;
using namespace steelyard::tests;

TEST(product_shapley_matches_sum_over_all_sets_of_columns) {
    constexpr std::size_t n_rows = 2, n_vectors = 3, n = 5, n_scores = 2;
    std::vector<double> a(n_rows * n_vectors * n), b(n_vectors * n), coef(n_scores * n_vectors);
    std::uint32_t state = 7;
    const auto next = [&] { return static_cast<double>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-24; };
    for (auto* values : {&a, &b, &coef})
        for (double& value : *values) value = next();
    a[3] = 0.0;  // factor of a row that is far from the support vector
    std::vector<double> out(n_rows * n * n_scores);
    product_shapley({a.data(), b.data(), coef.data(), n_rows, n_vectors, n, n_scores}, out.data(), 1);
    const double factorial[] = {1.0, 1.0, 2.0, 6.0, 24.0, 120.0};
    for (std::size_t row = 0; row < n_rows; ++row)
        for (std::size_t column = 0; column < n; ++column)
            for (std::size_t score = 0; score < n_scores; ++score) {
                double expected = 0.0;
                for (std::size_t v = 0; v < n_vectors; ++v)
                    for (unsigned set = 0; set < (1u << n); ++set) {
                        if (set >> column & 1u) continue;
                        double product = coef[score * n_vectors + v];
                        for (std::size_t c = 0; c < n; ++c) {
                            const double own = a[(row * n_vectors + v) * n + c], other = b[v * n + c];
                            product *= c == column ? own - other : (set >> c & 1u) ? own : other;
                        }
                        const auto size = static_cast<std::size_t>(std::popcount(set));
                        expected += product * factorial[size] * factorial[n - size - 1] / factorial[n];
                    }
                CHECK(std::abs(out[(row * n + column) * n_scores + score] - expected) < 1e-14, column);
            }
}
