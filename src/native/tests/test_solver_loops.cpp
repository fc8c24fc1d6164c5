#include <algorithm>
#include <cmath>

#include "check.hpp"
#include "enclosing/active_set.hpp"
#include "svm/row_index.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

const KernelSpec kRbf{KernelKind::rbf, 0.1, 0.0, 3};
constexpr std::size_t kSolverFeatures = 5;

KernelRows rows_of(const std::vector<double>& X) {
    KernelRows rows(kSolverFeatures, kRbf, {}, 1 << 20);
    for (std::size_t i = 0; i < X.size() / kSolverFeatures; ++i) rows.append(X.data() + i * kSolverFeatures);
    return rows;
}

double kernel(const KernelRows& rows, std::size_t i, std::size_t j) {
    double squared = 0.0;
    for (std::size_t k = 0; k < kSolverFeatures; ++k) squared += std::pow(rows.sample(i)[k] - rows.sample(j)[k], 2);
    return std::exp(-kRbf.gamma * squared);
}

}  // namespace

TEST(triangular_solves_equal_the_definition_at_every_level) {
    on_every_level([](const std::string& level) {
        for (std::size_t n = 1; n <= 40; ++n) {
            const std::size_t stride = n + 3;
            std::vector<double> L = random_values<double>(n * stride + kReadBehind, 1), inverse(n);
            for (std::size_t j = 0; j < n; ++j) {
                L[j * stride + j] = 4.0 + static_cast<double>(j);
                inverse[j] = 1.0 / L[j * stride + j];
            }
            const std::vector<double> x = random_values<double>(n, 2);
            std::vector<double> forward(n), backward(n);  // the products L x and L' x
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

TEST(steps_end_at_the_first_bound_at_every_level) {
    on_every_level([](const std::string& level) {
        for (std::size_t n = 0; n <= 40; ++n) {
            std::vector<double> dz = random_values<double>(n, 10), z(n), lower(n), upper(n), steps(n);
            for (std::size_t i = 0; i < n; ++i) {
                lower[i] = -0.1 * static_cast<double>(i % 3);
                upper[i] = lower[i] + 1.0;
                z[i] = lower[i] + 0.25 * static_cast<double>(i % 5);
                if (i % 7 == 6) dz[i] = 0.0;
            }
            double smallest = INFINITY;
            const double found =
                loops().solver.steps_to_bounds(z.data(), lower.data(), upper.data(), dz.data(), n, steps.data());
            for (std::size_t i = 0; i < n; ++i) {
                const double room = dz[i] > 0.0 ? upper[i] - z[i] : z[i] - lower[i];
                const double expected = dz[i] == 0.0 ? INFINITY : room / std::abs(dz[i]);
                CHECK(steps[i] == expected, level, n, i);
                smallest = std::min(smallest, expected);
            }
            CHECK(found == smallest, level, n);
            std::vector<double> moved = z;
            loops().solver.move_within(2.0, dz.data(), lower.data(), upper.data(), moved.data(), n);
            for (std::size_t i = 0; i < n; ++i)
                CHECK(std::abs(moved[i] - std::clamp(z[i] + 2.0 * dz[i], lower[i], upper[i])) < 1e-15, level, n, i);
        }
    });
}

TEST(suspects_are_all_samples_within_the_limit_of_a_violation) {
    on_every_level([](const std::string& level) {
        for (std::size_t n = 0; n <= 40; ++n) {
            const std::vector<double> e = random_values<double>(n, 3), lower(n, 0.0), upper(n, 1.0);
            std::vector<double> z(n), exact_at(n);
            for (std::size_t i = 0; i < n; ++i) {
                z[i] = 0.5 * static_cast<double>(i % 3);
                exact_at[i] = 0.1 * static_cast<double>(i % 5);
            }
            for (const double slack : {0.0, 0.2, 0.4}) {
                std::vector<std::uint32_t> expected, found(n);
                for (std::size_t i = 0; i < n; ++i) {
                    const double limit = slack - exact_at[i];
                    if ((z[i] < 1.0 && e[i] + 0.1 < limit) || (z[i] > 0.0 && -(e[i] + 0.1) < limit))
                        expected.push_back(static_cast<std::uint32_t>(i));
                }
                found.resize(loops().solver.suspects(e.data(), 0.1, z.data(), lower.data(), upper.data(), slack,
                                                     exact_at.data(), n, found.data()));
                CHECK(found == expected, level, n, slack);
            }
        }
    });
}

TEST(sums_over_cached_rows_respect_their_error_bound) {
    on_every_level([](const std::string& level) {
        for (const std::size_t n : {1u, 7u, 8u, 33u, 100u}) {
            KernelRows rows = rows_of(random_values<double>(n * kSolverFeatures, 4, 100.0));
            std::vector<double> z = random_values<double>(n, 5);
            std::vector<std::uint32_t> samples;
            double size = 0.0;
            for (std::size_t i = 0; i < n; ++i) {
                if (i % 4 == 0) z[i] *= 1e-3;
                samples.push_back(static_cast<std::uint32_t>(i)), size += std::abs(z[i]);
            }
            std::vector<double> exact(n);
            rows.exact_sums(z.data(), exact.data());
            for (const auto& [precision, largest] :
                 {std::pair(Precision::fixed, 3e-5), std::pair(Precision::single, 1e-6),
                  std::pair(Precision::full, 1e-15)}) {
                CHECK(rows.precision() == precision);
                std::vector<double> added(n, 1.0), summed(n, 1.0);
                const double added_error = rows.add_rows(samples, z, added.data());
                const double summed_error = rows.sum_rows(z.data(), summed.data());
                CHECK(added_error <= largest * size && summed_error <= added_error, level, n);
                for (std::size_t i = 0; i < n; ++i) {
                    CHECK(std::abs(added[i] - 1.0 - exact[i]) <= added_error + 1e-13 * (1.0 + size), level, n, i);
                    CHECK(std::abs(summed[i] - exact[i]) <= summed_error + 1e-13 * size, level, n, i);
                    CHECK(std::abs(rows.exact_sum(i, z.data(), n) - exact[i]) < 1e-13 * size, level, n, i);
                }
                rows.widen();
                CHECK(rows.n_kept() == (precision == Precision::full ? n : 0));
            }
        }
    });
}

TEST(fixed_point_rows_are_read_as_stored) {
    on_every_level([](const std::string& level) {
        KernelRows rows = rows_of(random_values<double>(50 * kSolverFeatures, 6));
        const float *first = rows.row<float>(3), *second = rows.row<float>(7);
        for (std::size_t j = 0; j < 50; ++j) {
            CHECK(std::abs(static_cast<double>(first[j]) - kernel(rows, 3, j)) < 1e-5, level, j);
            CHECK(std::abs(static_cast<double>(second[j]) - kernel(rows, 7, j)) < 1e-5, level, j);
        }
        CHECK(first[3] == 1.0F && second[7] == 1.0F, level);
    });
}

TEST(sums_with_weights_of_any_size_respect_their_error_bound) {
    KernelRows rows = rows_of(random_values<double>(20 * kSolverFeatures, 11));
    std::vector<std::uint32_t> samples(20);
    for (std::uint32_t i = 0; i < 20; ++i) samples[i] = i;
    for (const double scale : {0.0, 1e-310, 1e-40, 1e40, 1e200}) {
        std::vector<double> z = random_values<double>(20, 12), exact(20), added(20);
        for (double& zi : z) zi *= scale;
        rows.exact_sums(z.data(), exact.data());
        const double error = rows.add_rows(samples, z, added.data());
        CHECK(error >= 0.0, scale);
        for (std::size_t i = 0; i < 20; ++i)
            if (std::isfinite(added[i])) CHECK(std::abs(added[i] - exact[i]) <= error * (1.0 + 1e-12), scale, i);
    }
}

TEST(active_set_has_the_kernel_values_of_its_members) {
    std::mt19937 bits(8);
    KernelRows rows = rows_of(random_values<double>(60 * kSolverFeatures, 9));
    ActiveSet active(rows);
    active.resize(rows.size());
    for (int step = 0; step < 300; ++step) {
        const std::size_t i = bits() % rows.size();
        if (!active.holds(i))
            active.add(i);
        else if (step % 7 != 0 || rows.size() < 20)
            active.drop(active.slot(i));
        else {  // the sample is removed
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

TEST(row_index_finds_rows_after_insertions_removals_and_renumbering) {
    std::mt19937 bits(13);
    RowIndex index;
    std::vector<std::uint64_t> hashes;
    for (int step = 0; step < 3000; ++step) {
        if (hashes.empty() || bits() % 5 < 3) {
            hashes.push_back(bits() % 40 * (step % 2 ? 1 : 64));  // many equal hashes and many collisions
            index.insert(static_cast<std::uint32_t>(hashes.size() - 1), hashes.back());
        } else {  // the last row is renumbered to the number of the removed row
            const auto row = static_cast<std::uint32_t>(bits() % hashes.size());
            const auto last = static_cast<std::uint32_t>(hashes.size() - 1);
            index.erase(row);
            if (row != last) index.renumber(last, row);
            hashes[row] = hashes[last];
            hashes.pop_back();
        }
        for (const std::uint64_t hash : {std::uint64_t{3}, std::uint64_t{5 * 64}, std::uint64_t{7}}) {
            std::size_t n_found = 0;
            for (std::uint32_t row = index.first(hash); row != RowIndex::kNone; row = index.next(row), ++n_found)
                CHECK(row < hashes.size() && hashes[row] == hash, step);
            CHECK(n_found == static_cast<std::size_t>(std::count(hashes.begin(), hashes.end(), hash)), step);
        }
    }
    RowIndex same;
    for (const std::uint32_t row : index.order(static_cast<std::uint32_t>(hashes.size())))
        same.insert(row, hashes[row]);
    for (std::uint64_t hash = 0; hash < 40; ++hash) {
        std::uint32_t row = index.first(hash);
        for (std::uint32_t other = same.first(hash); row != RowIndex::kNone || other != RowIndex::kNone;) {
            CHECK(row == other, hash);
            if (row != other) break;
            row = index.next(row), other = same.next(other);
        }
    }
}
