// Tests of the functions for kernel boundary alignment, and of kernel values from a table.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "alignment/boundary.hpp"
#include "check.hpp"
#include "kernels/kernels.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

// Random rows, their matrix of inner products, and factors that scale the matrix.
struct Made {
    std::size_t n, d = 4;
    std::vector<double> phi, K, factor, self;

    explicit Made(std::size_t rows) : n(rows), phi(random_values<double>(rows * 4, 3)), K(rows * rows), self(rows) {
        for (const double value : random_values<double>(n, 5)) factor.push_back(0.5 + std::abs(value));
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t j = 0; j < n; ++j) K[i * n + j] = inner(i, j);
        for (std::size_t i = 0; i < n; ++i) self[i] = factor[i] * factor[i] * K[i * n + i];
    }
    double inner(std::size_t i, std::size_t j) const {
        double sum = 0.0;
        for (std::size_t k = 0; k < d; ++k) sum += phi[i * d + k] * phi[j * d + k];
        return sum;
    }
    KernelView view(bool symmetric = false) const { return {K.data(), n, n, factor.data(), factor.data(), symmetric}; }
    // Returns feature k of the boundary point between two rows.
    double point(std::int64_t rare, std::int64_t other, double beta, std::size_t k) const {
        const auto r = static_cast<std::size_t>(rare), o = static_cast<std::size_t>(other);
        return (1.0 - beta) * factor[r] * phi[r * d + k] + beta * factor[o] * phi[o * d + k];
    }
};

struct Points {
    std::vector<std::int64_t> rare, other;
    std::vector<double> lengths, widths;
    double beta = 0.7;

    Points(const Made& made, std::size_t count) {
        for (std::size_t b = 0; b < count; ++b) {
            rare.push_back(static_cast<std::int64_t>(b % (made.n / 2)));
            other.push_back(static_cast<std::int64_t>(made.n / 2 + (3 * b) % (made.n - made.n / 2)));
            double length = 0.0;
            for (std::size_t k = 0; k < made.d; ++k)
                length += std::pow(made.point(rare.back(), other.back(), beta, k), 2);
            lengths.push_back(length);
            widths.push_back(0.5 + 0.1 * static_cast<double>(b));
        }
    }
    BoundaryPoints view() const { return {rare, other, beta, lengths.data()}; }
};

bool is_near(double a, double b) { return std::abs(a - b) <= 1e-9 * (1.0 + std::abs(b)); }

}  // namespace

TEST(weighted_rows_match_matrix_vector_product) {
    for (const std::size_t n : {1, 7, 600, 1025}) {
        const Made made(n);
        const std::vector<double> all = random_values<double>(n, 9);
        std::vector<std::int64_t> rows;
        std::vector<double> coefficients, out(n, -1.0), threaded(n);
        for (std::size_t i = 0; i < n; i += 3) {
            rows.push_back(static_cast<std::int64_t>(i));
            coefficients.push_back(all[i]);
        }
        weighted_rows(made.view(), rows, coefficients.data(), out.data(), 1);
        weighted_rows(made.view(), rows, coefficients.data(), threaded.data(), 3);
        CHECK(out == threaded, n);
        for (std::size_t x = 0; x < n; ++x) {
            double expected = 0.0;
            for (std::size_t r = 0; r < rows.size(); ++r)
                expected += coefficients[r] * made.K[static_cast<std::size_t>(rows[r]) * n + x];
            CHECK(is_near(out[x], expected), n, x);
        }
    }
}

TEST(find_asymmetry_finds_a_single_wrong_entry) {
    for (const std::size_t n : {1, 2, 63, 64, 65, 200}) {
        Made made(n);
        CHECK(find_asymmetry(made.K.data(), n, 1e-9, 2) == n * n, n);
        for (const double wrong : {1.0, std::numeric_limits<double>::quiet_NaN(), HUGE_VAL})
            for (const std::size_t place : {std::size_t{0}, n * n / 2, n * n - 1}) {
                const std::size_t i = std::max(place / n, place % n), j = std::min(place / n, place % n);
                const bool on_diagonal = i == j;
                if (on_diagonal && std::isfinite(wrong)) continue;
                const double before = made.K[place];
                made.K[place] += wrong;
                CHECK(find_asymmetry(made.K.data(), n, 1e-9, 1) == i * n + j, n, place);
                CHECK(find_asymmetry(made.K.data(), n, 1e-9, 3) == i * n + j, n, place);
                made.K[place] = before;
            }
    }
}

TEST(scaled_part_is_exactly_symmetric) {
    const Made made(150);
    for (const std::size_t step : {1, 3}) {
        std::vector<std::int64_t> rows;
        for (std::size_t i = 0; i < made.n; i += step) rows.push_back(static_cast<std::int64_t>(i));
        const std::size_t m = rows.size();
        std::vector<double> part(m * m);
        scaled_part(made.view(), rows, part.data(), 2);
        for (std::size_t r = 0; r < m; ++r)
            for (std::size_t c = 0; c < m; ++c) {
                const auto i = static_cast<std::size_t>(rows[r]), j = static_cast<std::size_t>(rows[c]);
                CHECK(is_near(part[r * m + c], made.factor[i] * made.factor[j] * made.K[i * made.n + j]), r, c);
                CHECK(part[r * m + c] == part[c * m + r], r, c);
            }
    }
}

TEST(largest_exponents_match_explicit_points_in_both_orders) {
    const Made made(700);
    for (const std::size_t count : {1, 5, 90}) {
        const Points points(made, count);
        std::vector<double> rowwise(made.n), along(made.n), threaded(made.n);
        largest_exponents(made.view(false), made.self.data(), points.view(), points.widths.data(), rowwise.data(), 1);
        largest_exponents(made.view(true), made.self.data(), points.view(), points.widths.data(), along.data(), 1);
        largest_exponents(made.view(true), made.self.data(), points.view(), points.widths.data(), threaded.data(), 3);
        CHECK(along == threaded, count);
        for (std::size_t x = 0; x < made.n; x += 13) {
            double expected = -HUGE_VAL;
            for (std::size_t b = 0; b < count; ++b) {
                double squared = 0.0;
                for (std::size_t k = 0; k < made.d; ++k) {
                    const double here = made.factor[x] * made.phi[x * made.d + k];
                    squared += std::pow(here - made.point(points.rare[b], points.other[b], points.beta, k), 2);
                }
                expected = std::max(expected, -squared / points.widths[b]);
            }
            CHECK(is_near(rowwise[x], expected), count, x);
            CHECK(is_near(along[x], expected), count, x);
        }
    }
}

TEST(mean_near_distances_match_explicit_points) {
    const Made made(60);
    const Points points(made, 25);
    for (const double limit : {1e-6, 2.0, HUGE_VAL})
        for (const std::size_t most : {1, 5, 100}) {
            std::vector<double> widths(25), threaded(25);
            mean_near_distances(made.view(), points.view(), limit, most, widths.data(), 1);
            mean_near_distances(made.view(), points.view(), limit, most, threaded.data(), 3);
            CHECK(widths == threaded, limit, most);
            for (std::size_t b = 0; b < 25; ++b) {
                std::vector<double> all, near;
                for (std::size_t c = 0; c < 25; ++c) {
                    double squared = 0.0;
                    for (std::size_t k = 0; k < made.d; ++k)
                        squared += std::pow(made.point(points.rare[b], points.other[b], points.beta, k) -
                                                made.point(points.rare[c], points.other[c], points.beta, k),
                                            2);
                    if (squared > 1e-9) all.push_back(squared);
                }
                std::sort(all.begin(), all.end());
                for (const double squared : all)
                    if (squared < limit && near.size() < most) near.push_back(squared);
                if (near.empty()) near.push_back(all.front());
                double sum = 0.0;
                for (const double squared : near) sum += squared;
                CHECK(is_near(widths[b], sum / static_cast<double>(near.size())), b, limit, most);
            }
        }
}

TEST(lookup_kernel_reads_the_table_at_row_slots) {
    on_every_level([&](const std::string& level) {
        const Made made(50);
        const KernelTable table{made.K.data(), made.n};
        const KernelSpec spec{.kind = KernelKind::lookup, .table = &table};
        for (const std::size_t n : {1, 15, 16, 17, 40}) {
            std::vector<double> places, values(n * n), own(n);
            for (std::size_t i = 0; i < n; ++i) places.push_back(static_cast<double>((7 * i) % made.n));
            const Rows<double> rows{places.data(), n, 1};
            kernel_block<double>(spec, rows, rows, values.data(), n, 1);
            kernel_diagonal<double>(spec, rows, own.data());
            for (std::size_t i = 0; i < n; ++i) {
                CHECK(own[i] == values[i * n + i], level, n, i);
                for (std::size_t j = 0; j < n; ++j) {
                    const auto a = static_cast<std::size_t>(places[i]), b = static_cast<std::size_t>(places[j]);
                    CHECK(values[i * n + j] == made.K[a * made.n + b], level, n, i, j);
                }
            }
        }
    });
}
