// Compares the SIMD loops of the online learners with simple loops, at every SIMD level.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "check.hpp"
#include "common/denormals.hpp"
#include "common/random.hpp"
#include "common/rows.hpp"
#include "koil/linear_online.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

std::size_t padded(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

// Random numbers with many ties, in a vector that is readable up to the end of a cache line.
template <class Real>
AlignedVector<Real> values_with_ties(std::size_t n, unsigned seed, double steps) {
    AlignedVector<Real> values(padded(n, kLineOf<Real>), Real(0));
    const auto drawn = random_values<double>(n, seed);
    for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<Real>(std::round(drawn[i] * steps) / steps);
    return values;
}

// Error tolerance of a short sum.
template <class Real>
constexpr double kLoopRounding = 100.0 * static_cast<double>(std::numeric_limits<Real>::epsilon());

// Returns all violators, or the `most` nearest violators. Ties are resolved in favour of lower positions.
template <class Real>
std::vector<std::uint32_t> reference_violators(const ViolatorQuery<Real>& q) {
    std::vector<std::uint32_t> found;
    for (std::uint32_t i = 0; i < q.n; ++i)
        if (q.losses[i] > 0) found.push_back(i);
    if (found.size() > q.most) {
        std::stable_sort(found.begin(), found.end(),
                         [&](std::uint32_t a, std::uint32_t b) { return q.similarities[a] > q.similarities[b]; });
        found.resize(q.most);
        std::sort(found.begin(), found.end());
    }
    return found;
}

std::vector<std::int8_t> random_signs(std::size_t n, unsigned seed, double share) {
    std::vector<std::int8_t> y(n);
    for (std::size_t i = 0; i < n; ++i) y[i] = uniform_at(seed, i) < share ? 1 : -1;
    return y;
}

template <class Real>
long double inner(const Real* a, const Real* b, std::size_t n) {
    long double sum = 0.0L;
    for (std::size_t i = 0; i < n; ++i) sum += static_cast<long double>(a[i]) * static_cast<long double>(b[i]);
    return sum;
}

bool close(double a, double b, double tolerance) {
    return std::abs(a - b) <= tolerance * (1.0 + std::abs(a) + std::abs(b));
}

template <class Real>
void check_violators(const std::string& level) {
    for (const std::size_t n : {0, 1, 2, 7, 8, 9, 15, 16, 17, 33, 64, 65, 100, 257})
        for (const std::size_t most : {1, 2, 5, 16, 17, 40, 300})
            for (const double steps : {0.0001, 1.0, 4.0, 1e9}) {  // tests values from all equal to no ties
                const auto scores = values_with_ties<Real>(n, 1 + static_cast<unsigned>(n), steps);
                const auto similarities = values_with_ties<Real>(n, 2 + static_cast<unsigned>(n), steps);
                std::vector<Real> losses(padded(n, kLineOf<Real>));
                std::vector<typename KeyOf<Real>::Type> keys(padded(n, kKeyPadding) + kKeyPadding);
                std::vector<std::uint32_t> chosen(padded(n, kKeyPadding) + kKeyPadding);
                const ViolatorQuery<Real> query{scores.data(), similarities.data(), n,
                                                Real(0.1),     Real(-0.7),          most,
                                                losses.data(), keys.data(),         chosen.data()};
                chosen.resize(loops().online.of<Real>().violators(query));
                CHECK(chosen == reference_violators(query), level, n, most, steps);
                for (std::size_t i = 0; i < n; ++i)
                    CHECK(close(losses[i], 0.1 - 0.7 * scores[i], kLoopRounding<Real>), level, n, i);
            }
}

template <class Real>
void check_zeros(const std::string& level) {
    const AlignedVector<Real> scores(16, Real(0));
    AlignedVector<Real> similarities(16, Real(0));
    similarities[0] = similarities[3] = Real(-0.0);
    similarities[2] = Real(-1);
    std::vector<Real> losses(16);
    std::vector<typename KeyOf<Real>::Type> keys(32);
    std::vector<std::uint32_t> chosen(32);
    chosen.resize(loops().online.of<Real>().violators(
        {scores.data(), similarities.data(), 5, Real(1), Real(1), 2, losses.data(), keys.data(), chosen.data()}));
    CHECK((chosen == std::vector<std::uint32_t>{0, 1}), level);
}

template <class Real>
void check_rows(const std::string& level) {
    for (const std::size_t n : {1, 7, 8, 9, 31, 64, 100, 104, 105, 112, 113, 250})
        for (const std::size_t n_rows : {0, 1, 3, 20}) {
            std::vector<AlignedVector<Real>> rows;
            std::vector<const Real*> pointers;
            for (std::size_t r = 0; r < n_rows; ++r) {
                rows.push_back(values_with_ties<Real>(n, static_cast<unsigned>(10 + r), 1e9));
                pointers.push_back(rows.back().data());
            }
            const auto factors = random_values<Real>(n_rows, 3);
            auto target = values_with_ties<Real>(n, 4, 1e9);
            const auto before = target;
            loops().online.of<Real>().add_rows(pointers.data(), factors.data(), n_rows, target.data(), n);
            for (std::size_t j = 0; j < n; ++j) {
                double expected = before[j];
                for (std::size_t r = 0; r < n_rows; ++r) expected += static_cast<double>(factors[r]) * rows[r][j];
                CHECK(close(target[j], expected, kLoopRounding<Real>), level, n, n_rows, j);
            }
            std::vector<std::uint32_t> index(n);
            for (std::size_t j = 0; j < n; ++j) index[j] = static_cast<std::uint32_t>((j * 7 + 3) % n);
            std::vector<Real> gathered(n);
            loops().online.of<Real>().gather(before.data(), index.data(), gathered.data(), n);
            for (std::size_t j = 0; j < n; ++j) CHECK(gathered[j] == before[index[j]], level, n, j);
        }
}

template <class Real>
void check_sides(const std::string& level) {
    for (const std::size_t n : {0, 1, 5, 8, 31, 32, 33, 130})
        for (const std::size_t m : {0, 1, 9, 64}) {
            const auto a = values_with_ties<Real>(n, 1, 1e9), b = values_with_ties<Real>(n, 2, 1e9);
            const auto c = values_with_ties<Real>(m, 3, 1e9), d = values_with_ties<Real>(m, 4, 1e9);
            const auto expected = static_cast<double>(inner(a.data(), b.data(), n) + inner(c.data(), d.data(), m));
            const Real given = loops().online.of<Real>().dot_sides(a.data(), b.data(), n, c.data(), d.data(), m);
            CHECK(close(given, expected, kLoopRounding<Real>), level, n, m);
        }
    for (std::size_t n = 1; n < 150; ++n)
        for (const double steps : {0.0001, 1.0, 1e9}) {
            const auto values = values_with_ties<Real>(n, static_cast<unsigned>(n), steps);
            const auto first = std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n));
            const auto place = static_cast<std::size_t>(first - values.begin());
            CHECK(loops().online.of<Real>().argmax(values.data(), n) == place, level, n, steps);
            auto target = values_with_ties<Real>(n, 5, 1e9), expected = target;
            const Real factor = Real(-0.3), *row = values.data();
            CHECK(loops().online.of<Real>().add_and_argmax(row, factor, target.data(), n) == place, level, n, steps);
            loops().online.of<Real>().add_rows(&row, &factor, 1, expected.data(), n);
            CHECK(target == expected, level, n, steps);
        }
}

template <class Real>
void check_two_products(const std::string& level) {
    for (const std::size_t n : {0, 1, 5, 8, 31, 32, 33, 104})
        for (const std::size_t m : {0, 1, 9, 64, 100}) {
            const std::size_t apart = 112;
            auto first = values_with_ties<Real>(2 * apart, 1, 1e9), second = values_with_ties<Real>(2 * apart, 2, 1e9);
            const auto row = values_with_ties<Real>(2 * apart, 3, 1e9);
            for (auto* weights : {&first, &second}) {  // pads the weights with zeros
                std::fill(weights->begin() + static_cast<std::ptrdiff_t>(n), weights->begin() + apart, Real(0));
                std::fill(weights->begin() + static_cast<std::ptrdiff_t>(apart + m), weights->end(), Real(0));
            }
            TwoDots<Real> query{{first.data(), second.data()}, row.data(), {n, m}, apart, {}};
            loops().online.of<Real>().dot_sides_twice(query);
            for (const std::size_t w : {0, 1})
                CHECK(query.products[w] == loops().online.of<Real>().dot_sides(query.weights[w], row.data(), n,
                                                                               query.weights[w] + apart,
                                                                               row.data() + apart, m),
                      level, n, m);
        }
}

// Checks the order of similarities that are denormal or differ only in the last bits.
// The order must also be correct if denormals are flushed to zero.
template <class Real>
void check_small_differences(const std::string& level) {
    const Real steps[] = {std::numeric_limits<Real>::epsilon(), std::numeric_limits<Real>::denorm_min()};
    for (const std::size_t n : {20, 90, 150})
        for (const Real step : steps)
            for (const Real sign : {Real(1), Real(-1)})
                for (const bool kept : {true, false}) {
                    AlignedVector<Real> similarities(padded(n, kLineOf<Real>)), scores(similarities.size());
                    for (std::size_t i = 0; i < n; ++i)
                        similarities[i] = sign * (step * static_cast<Real>(i * 7 % 64) + (step > Real(1e-20) ? 1 : 0));
                    std::vector<Real> losses(similarities.size());
                    std::vector<typename KeyOf<Real>::Type> keys(padded(n, kKeyPadding) + kKeyPadding);
                    std::vector<std::uint32_t> chosen(n + kKeyPadding);
                    const ViolatorQuery<Real> query{
                        scores.data(), similarities.data(), n, Real(1), Real(1), 10, losses.data(),
                        keys.data(),   chosen.data()};
                    std::size_t largest = 0;
                    {
                        const Denormals mode(kept);
                        chosen.resize(loops().online.of<Real>().violators(query));
                        largest = loops().online.of<Real>().argmax(similarities.data(), n);
                    }
                    CHECK(chosen == reference_violators(query), level, n, step, sign, kept);
                    const auto first =
                        std::max_element(similarities.begin(), similarities.begin() + static_cast<std::ptrdiff_t>(n));
                    CHECK(largest == static_cast<std::size_t>(first - similarities.begin()), level, n, step, sign,
                          kept);
                }
}

template <class Real>
void check_columns(const std::string& level) {
    constexpr std::size_t line = kLineOf<Real>;
    for (const std::size_t n : {line, 2 * line, 5 * line}) {
        const std::size_t ld = 6 * line;
        const auto from = random_values<Real>(line * ld, 5);
        std::vector<Real> to(n * ld, Real(-7));
        loops().online.of<Real>().transpose(from.data(), to.data(), ld, n);
        for (std::size_t j = 0; j < n; ++j)
            for (std::size_t c = 0; c < ld; ++c)
                CHECK(to[j * ld + c] == (c < line ? from[c * ld + j] : Real(-7)), level, n, j, c);
    }
}

}  // namespace

TEST(violators_match_a_stable_sort) {
    on_every_level(check_violators<double>);
    on_every_level(check_violators<float>);
}

TEST(negative_zero_ties_with_zero) {
    on_every_level(check_zeros<double>);
    on_every_level(check_zeros<float>);
}

TEST(add_rows_and_gather_match_plain_loops) {
    on_every_level(check_rows<double>);
    on_every_level(check_rows<float>);
}

TEST(dot_sides_and_argmax_match_plain_loops) {
    on_every_level(check_sides<double>);
    on_every_level(check_sides<float>);
}

TEST(dot_sides_twice_is_bitwise_equal_to_two_dot_sides) {
    on_every_level(check_two_products<double>);
    on_every_level(check_two_products<float>);
}

TEST(argmax_and_violators_distinguish_values_that_differ_in_the_last_bit) {
    on_every_level(check_small_differences<double>);
    on_every_level(check_small_differences<float>);
}

TEST(transpose_matches_plain_loops) {
    on_every_level(check_columns<double>);
    on_every_level(check_columns<float>);
}

TEST(perceptron_updates_on_mistakes_only) {
    const std::size_t n = 200, d = 5;
    const auto X = random_values<double>(n * d, 1);
    const auto y = random_signs(n, 2, 0.3);
    std::vector<double> weights(d), expected(d);
    double bias = 0.0, expected_bias = 0.0;
    perceptron_sweep<double>({X.data(), n, d}, y.data(), weights.data(), bias);
    for (std::size_t i = 0; i < n; ++i) {
        const double score = static_cast<double>(inner(expected.data(), X.data() + i * d, d)) + expected_bias;
        if (y[i] * score > 0.0) continue;
        for (std::size_t k = 0; k < d; ++k) expected[k] += y[i] * X[i * d + k];
        expected_bias += y[i];
    }
    for (std::size_t k = 0; k < d; ++k) CHECK(close(weights[k], expected[k], 1e-12), k);
    CHECK(bias == expected_bias);
}

TEST(oam_matches_its_formulas_within_bound_and_budget) {
    const std::size_t n = 150, d = 4, budget = 6;
    const auto X = random_values<float>(n * d, 3);
    const auto y = random_signs(n, 4, 0.4);
    const double C = 0.3;
    std::vector<double> weights(d), buffers(2 * budget * d);
    std::uint64_t stored[2] = {0, 0}, seen[2] = {0, 0};
    oam_sweep<float>({X.data(), n, d}, y.data(),
                     {weights.data(), {buffers.data(), buffers.data() + budget * d}, stored, seen}, budget, C, 11);
    // Reference implementation of OAM with one reservoir per class and a passive-aggressive step for each pair.
    std::vector<double> expected(d);
    std::vector<std::vector<double>> kept[2];
    std::uint64_t counts[2] = {0, 0};
    for (std::size_t i = 0; i < n; ++i) {
        const int own = y[i] > 0, other = 1 - own;
        const std::vector<double> x(X.begin() + static_cast<std::ptrdiff_t>(i * d),
                                    X.begin() + static_cast<std::ptrdiff_t>((i + 1) * d));
        const double drawn = uniform_at(11, counts[0] + counts[1]) * static_cast<double>(++counts[own]);
        if (kept[own].size() < budget)
            kept[own].push_back(x);
        else if (drawn < static_cast<double>(budget))
            kept[own][static_cast<std::size_t>(drawn)] = x;
        const double bound = C * std::max(1.0, static_cast<double>(counts[other]) / static_cast<double>(budget));
        for (const auto& z : kept[other]) {
            std::vector<double> difference(d);
            for (std::size_t k = 0; k < d; ++k) difference[k] = x[k] - z[k];
            const auto loss = static_cast<double>(1.0L - y[i] * inner(expected.data(), difference.data(), d));
            const auto squared = static_cast<double>(inner(difference.data(), difference.data(), d));
            if (loss <= 0.0 || squared <= 0.0) continue;
            for (std::size_t k = 0; k < d; ++k) expected[k] += y[i] * std::min(bound, loss / squared) * difference[k];
        }
    }
    for (std::size_t k = 0; k < d; ++k) CHECK(close(weights[k], expected[k], 1e-9), k, weights[k], expected[k]);
    CHECK(stored[0] == kept[0].size() && stored[1] == kept[1].size());
}

TEST(opauc_means_and_covariances_match_the_rows) {
    const std::size_t n = 120, d = 3;
    const auto X = random_values<double>(n * d, 5, 2.0);
    const auto y = random_signs(n, 6, 0.5);
    std::vector<double> weights(d), means(2 * d), covariances(2 * d * d);
    std::uint64_t seen[2] = {0, 0};
    opauc_sweep<double>(
        {X.data(), n, d}, y.data(),
        {weights.data(), {means.data(), means.data() + d}, {covariances.data(), covariances.data() + d * d}, seen},
        0.01, 0.1);
    for (const int side : {0, 1}) {
        std::vector<double> mean(d);
        std::vector<std::size_t> rows;
        for (std::size_t i = 0; i < n; ++i)
            if ((y[i] > 0) == side) rows.push_back(i);
        CHECK(rows.size() == seen[side]);
        const double count = static_cast<double>(rows.size());
        for (const std::size_t i : rows)
            for (std::size_t k = 0; k < d; ++k) mean[k] += X[i * d + k] / count;
        for (std::size_t r = 0; r < d; ++r) {
            CHECK(close(means[static_cast<std::size_t>(side) * d + r], mean[r], 1e-12), side, r);
            for (std::size_t k = 0; k < d; ++k) {
                double covariance = 0.0;
                for (const std::size_t i : rows)
                    covariance += (X[i * d + r] - mean[r]) * (X[i * d + k] - mean[k]) / count;
                const double kept = covariances[static_cast<std::size_t>(side) * d * d + r * d + k];
                CHECK(close(kept, covariance, 1e-12), side, r, k);
            }
        }
    }
    CHECK(std::any_of(weights.begin(), weights.end(), [](double w) { return w != 0.0; }));
}
