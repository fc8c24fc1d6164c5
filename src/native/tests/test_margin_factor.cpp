#include <cmath>
#include <random>
#include <vector>

#include "check.hpp"
#include "svm/margin_factor.hpp"

namespace {

using steelyard::MarginFactor;

// Entry of the kernel matrix of points on a line, with the constant 1 added.
double entry(double x, double z) { return std::exp(-0.5 * (x - z) * (x - z)) + 1.0; }

std::vector<double> column(const std::vector<double>& points, double x) {
    std::vector<double> a;
    for (const double p : points) a.push_back(entry(p, x));
    return a;
}

// Returns the largest error of A x = a, where x is solved with the factor.
double residual(const MarginFactor& factor, const std::vector<double>& points, const std::vector<double>& a) {
    std::vector<double> x = a;
    factor.forward(x.data());
    factor.backward(x.data());
    double worst = 0.0;
    for (std::size_t i = 0; i < points.size(); ++i) {
        double sum = -a[i];
        for (std::size_t j = 0; j < points.size(); ++j) sum += entry(points[i], points[j]) * x[j];
        worst = std::max(worst, std::abs(sum));
    }
    return worst;
}

}  // namespace

TEST(margin_factor_solves_after_growing_and_shrinking) {
    std::mt19937_64 random(1);
    MarginFactor factor;
    std::vector<double> points;
    for (int step = 0; step < 400; ++step) {
        if (points.size() < 5 || (random() % 5 < 3 && points.size() < 40)) {
            const double x = 1.5 * static_cast<double>(step);
            std::vector<double> solved = column(points, x);
            factor.forward(solved.data());
            factor.append(solved.data(), factor.pivot_squared(solved.data(), entry(x, x)));
            points.push_back(x);
        } else {
            const std::size_t k = random() % points.size();
            factor.remove(k);
            points.erase(points.begin() + static_cast<std::ptrdiff_t>(k));
        }
        CHECK(factor.size() == points.size());
        CHECK(residual(factor, points, column(points, 0.3)) < 1e-11);
    }
}

TEST(margin_factor_updates_solved_vectors_when_it_shrinks) {
    MarginFactor factor;
    std::vector<double> points;
    for (int step = 0; step < 20; ++step) {
        std::vector<double> solved = column(points, 1.5 * step);
        factor.forward(solved.data());
        factor.append(solved.data(), factor.pivot_squared(solved.data(), entry(0.0, 0.0)));
        points.push_back(1.5 * step);
    }
    std::vector<double> solved = column(points, 7.1);
    factor.forward(solved.data());
    for (const std::size_t k : {19u, 7u, 0u, 3u}) {
        factor.remove(k, solved.data());
        points.erase(points.begin() + static_cast<std::ptrdiff_t>(k));
        std::vector<double> expected = column(points, 7.1);
        factor.forward(expected.data());
        for (std::size_t i = 0; i < points.size(); ++i) CHECK(std::abs(expected[i] - solved[i]) < 1e-13, k, i);
    }
}

TEST(margin_factor_solution_has_the_requested_sum) {
    MarginFactor factor;
    std::vector<double> points;
    for (const double x : {0.0, 1.0, 2.5}) {
        std::vector<double> solved = column(points, x);
        factor.forward(solved.data());
        factor.append(solved.data(), factor.pivot_squared(solved.data(), entry(x, x)));
        points.push_back(x);
    }
    const double total = 0.7;
    std::vector<double> r{0.1, -0.4, 0.2}, dz = r;
    for (double& value : dz) value += total;  // adds constant * total; the constant of the factor is 1
    factor.forward(dz.data());
    const double db = factor.solve_bordered(dz.data(), total);
    CHECK(std::abs(dz[0] + dz[1] + dz[2] + total) < 1e-13);
    for (std::size_t i = 0; i < 3; ++i) {
        double sum = r[i] + db;
        for (std::size_t j = 0; j < 3; ++j) sum += (entry(points[i], points[j]) - 1.0) * dz[j];
        CHECK(std::abs(sum) < 1e-13);
    }
}

TEST(margin_factor_continues_from_its_packed_state) {
    MarginFactor factor, restored;
    std::vector<double> points;
    for (const double x : {0.0, 1.0, 2.0, 4.0}) {
        std::vector<double> solved = column(points, x);
        factor.forward(solved.data());
        factor.append(solved.data(), factor.pivot_squared(solved.data(), entry(x, x)));
        points.push_back(x);
    }
    factor.remove(1);
    restored.restore(factor.packed(), factor.size());
    factor.remove(0);
    restored.remove(0);
    CHECK(factor.packed() == restored.packed());
}
