#include <algorithm>
#include <cmath>

#include "check.hpp"
#include "steelyard/active_set.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

const KernelSpec kRbf{KernelKind::rbf, 0.1, 0.0, 3};
constexpr std::size_t kFeatures = 5;

KernelRows rows_of(const std::vector<double>& X) {
    KernelRows rows(kFeatures, kRbf, {}, 1 << 20);
    for (std::size_t i = 0; i < X.size() / kFeatures; ++i) rows.append(X.data() + i * kFeatures);
    return rows;
}

double kernel(const KernelRows& rows, std::size_t i, std::size_t j) {
    double squared = 0.0;
    for (std::size_t k = 0; k < kFeatures; ++k) squared += std::pow(rows.sample(i)[k] - rows.sample(j)[k], 2);
    return std::exp(-kRbf.gamma * squared);
}

}  // namespace

TEST(triangular_solves_are_those_of_the_definition_on_every_level) {
    on_every_level([](const std::string& level) {
        for (std::size_t n = 1; n <= 40; ++n) {
            const std::size_t stride = n + 3;
            std::vector<double> L = random_values<double>(n * stride, 1), inverse(n);
            for (std::size_t j = 0; j < n; ++j) {
                L[j * stride + j] = 4.0 + static_cast<double>(j);
                inverse[j] = 1.0 / L[j * stride + j];
            }
            const std::vector<double> x = random_values<double>(n, 2);
            std::vector<double> forward(n), backward(n);  // L x and L' x
            for (std::size_t j = 0; j < n; ++j)
                for (std::size_t i = j; i < n; ++i) {
                    forward[i] += L[j * stride + i] * x[j];
                    backward[j] += L[j * stride + i] * x[i];
                }
            const TriangularFactor factor{L.data(), inverse.data(), stride, n};
            loops().solver.solve_forward(factor, forward.data());
            loops().solver.solve_backward(factor, backward.data());
            for (std::size_t i = 0; i < n; ++i) {
                CHECK(std::abs(forward[i] - x[i]) < 1e-12, level, n, i);
                CHECK(std::abs(backward[i] - x[i]) < 1e-12, level, n, i);
            }
        }
    });
}

TEST(suspects_are_all_who_are_nearer_to_violating_than_the_limit) {
    on_every_level([](const std::string& level) {
        for (std::size_t n = 0; n <= 40; ++n) {
            const std::vector<double> e = random_values<double>(n, 3), lower(n, 0.0), upper(n, 1.0);
            std::vector<double> z(n);
            for (std::size_t i = 0; i < n; ++i) z[i] = 0.5 * static_cast<double>(i % 3);
            for (const double limit : {-0.2, 0.0, 0.2}) {
                std::vector<std::uint32_t> expected, found(n);
                for (std::size_t i = 0; i < n; ++i)
                    if ((z[i] < 1.0 && e[i] + 0.1 < limit) || (z[i] > 0.0 && -(e[i] + 0.1) < limit))
                        expected.push_back(static_cast<std::uint32_t>(i));
                found.resize(loops().solver.suspects(e.data(), 0.1, z.data(), lower.data(), upper.data(), limit, n,
                                                     found.data()));
                CHECK(found == expected, level, n, limit);
            }
        }
    });
}

TEST(sums_over_float_rows_are_no_farther_off_than_they_say) {
    on_every_level([](const std::string& level) {
        for (const std::size_t n : {1u, 7u, 8u, 33u, 100u}) {
            KernelRows rows = rows_of(random_values<double>(n * kFeatures, 4, 100.0));
            const std::vector<double> z = random_values<double>(n, 5);
            std::vector<std::uint32_t> samples;
            double size = 0.0;
            for (std::size_t i = 0; i < n; ++i)
                samples.push_back(static_cast<std::uint32_t>(i)), size += std::abs(z[i]);
            std::vector<double> exact(n), narrow(n), careful(n);
            rows.exact_sums(z.data(), exact.data());
            rows.add_rows(samples, z, narrow.data());
            rows.add_rows_carefully(samples, z, careful.data());
            CHECK(!rows.is_wide());
            CHECK(rows.careful_error(size) < rows.narrow_error(size) && rows.narrow_error(size) < 1e-6 * size);
            for (std::size_t i = 0; i < n; ++i) {
                CHECK(std::abs(rows.exact_sum(i, z.data()) - exact[i]) < 1e-13 * size, level, n, i);
                CHECK(std::abs(narrow[i] - exact[i]) <= rows.narrow_error(size), level, n, i);
                CHECK(std::abs(careful[i] - exact[i]) <= rows.careful_error(size), level, n, i);
            }
        }
    });
}

TEST(wide_rows_are_exact) {
    KernelRows rows = rows_of(random_values<double>(50 * kFeatures, 6));
    const std::vector<double> z = random_values<double>(50, 7);
    std::vector<std::uint32_t> samples(50);
    for (std::uint32_t i = 0; i < 50; ++i) samples[i] = i;
    std::vector<double> exact(50), summed(50);
    rows.keep(3);
    rows.widen();
    CHECK(rows.n_kept() == 0);
    rows.exact_sums(z.data(), exact.data());
    rows.add_rows(samples, z, summed.data());
    for (std::size_t i = 0; i < 50; ++i) CHECK(std::abs(summed[i] - exact[i]) < 1e-13, i);
    CHECK(rows.narrow_error(1.0) == 0.0);
}

TEST(the_active_set_has_the_kernel_values_of_its_members_whoever_comes_and_goes) {
    std::mt19937 bits(8);
    KernelRows rows = rows_of(random_values<double>(60 * kFeatures, 9));
    ActiveSet active(rows);
    active.resize(rows.size());
    for (int step = 0; step < 300; ++step) {
        const std::size_t i = bits() % rows.size();
        if (!active.holds(i))
            active.add(i);
        else if (step % 7 != 0 || rows.size() < 20)
            active.drop(active.slot(i));
        else {  // the sample goes for good
            active.drop(active.slot(i));
            active.swap_remove(i);
            rows.swap_remove(i);
        }
        std::vector<double> values(active.size());
        active.evaluate(0, values.data());
        for (std::size_t a = 0; a < active.size(); ++a) {
            CHECK(active.slot(active.sample(a)) == a);
            CHECK(std::abs(values[a] - kernel(rows, 0, active.sample(a))) < 1e-14);
            for (std::size_t b = 0; b < active.size(); ++b)
                CHECK(std::abs(active.row(a)[b] - kernel(rows, active.sample(a), active.sample(b))) < 1e-14, step);
        }
    }
}
