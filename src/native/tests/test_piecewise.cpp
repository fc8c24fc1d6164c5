// Compares piecewise linear functions with their definition.
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "check.hpp"
#include "trees/piecewise.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

constexpr double kInfiniteValue = std::numeric_limits<double>::infinity();

}  // namespace

TEST(pieces_are_constant_before_the_first_knot_and_follow_the_slopes_after_it) {
    const std::vector<double> knots{0.0, -1.0, 1.0, -1.0, 4.0, -1.0}, values{0.0, 5.0, 2.0, 5.0, 3.0, 5.0};
    const std::vector<double> slopes{2.0, 0.0, 1.0 / 3.0, 0.0, 0.0, 0.0};
    const std::vector<double> X{-7.0, 9.0, 0.0, -1e308, 0.5, 1e308, 1.0, -1.0, 2.5, 0.0, 4.0, 0.0, 1e308, 1e308};
    std::vector<double> out(X.size());
    apply_pieces({X.data(), 7, 2}, {knots.data(), values.data(), slopes.data(), 3}, out.data());
    const std::vector<double> expected{0.0, 0.0, 1.0, 2.0, 2.5, 3.0, 3.0};
    for (std::size_t i = 0; i < 7; ++i) {
        CHECK(std::abs(out[2 * i] - expected[i]) < 1e-15, i);
        CHECK(out[2 * i + 1] == 5.0);
    }
}

TEST(sums_of_lookups_ignore_nan_values_and_functions_of_weight_zero) {
    const std::vector<double> knots{0.0, 1.0, 1.0, 2.0, 7.0}, values{-1.0, 0.0, 0.0, 4.0, 3.0}, weights{0.5, 0.25};
    const std::vector<std::int64_t> starts{0, 4, 5};
    const std::vector<double> X{-kInfiniteValue, 0.0, 0.5, NAN, 1.0, 7.0, 1.5, 8.0, kInfiniteValue, NAN, NAN, NAN};
    std::vector<double> out(6, 9.0);
    sum_lookups({X.data(), 6, 2}, {knots, values, weights, starts}, out.data());
    const std::vector<double> expected{0.25, -0.25, 0.75, 1.75, 2.0, 0.0};
    for (std::size_t i = 0; i < 6; ++i) CHECK(std::abs(out[i] - expected[i]) < 1e-15, i);
    const std::vector<double> nobody{0.0, 0.0};
    sum_lookups({X.data(), 6, 2}, {knots, values, nobody, starts}, out.data());
    for (const double sum : out) CHECK(sum == 0.0);
}

TEST(lookups_of_nan_values_and_of_functions_with_one_knot_are_zero) {
    const std::vector<double> knots{0.0, 1.0, 1.0, 2.0, 7.0}, values{-1.0, 0.0, 0.0, 4.0, 3.0};
    const std::vector<std::int64_t> starts{0, 4, 5};
    const std::vector<double> X{-kInfiniteValue, 0.0, 0.5, NAN, NAN, 7.0, 1.5, 8.0};
    std::vector<double> out(X.size(), 9.0);
    apply_lookups({X.data(), 4, 2}, {knots, values, {}, starts}, out.data());
    const std::vector<double> expected{-1.0, 0.0, -0.5, 0.0, 0.0, 0.0, 2.0, 0.0};
    for (std::size_t i = 0; i < X.size(); ++i) CHECK(std::abs(out[i] - expected[i]) < 1e-15, i);
}
