// Trees against sums that are made row by row, and trees that must not be walked.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "common/random.hpp"
#include "trees/boosting.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

struct Sample {
    std::size_t n, d;
    std::vector<double> X, weights;
    std::vector<std::int64_t> codes;

    Rows<double> rows() const { return {X.data(), n, d}; }
};

// Classes by a rule over two columns; the other columns are noise, of few values or of many.
Sample sample_of(std::size_t n, std::size_t d, std::int64_t n_classes, std::uint64_t seed) {
    Sample s{n, d, std::vector<double>(n * d), std::vector<double>(n, 1.0), std::vector<std::int64_t>(n)};
    for (std::size_t r = 0; r < n; ++r) {
        for (std::size_t c = 0; c < d; ++c) {
            const double value = uniform_at(seed, r, c);
            s.X[r * d + c] = c % 3 == 2 ? std::floor(4.0 * value) : value;
        }
        const double at = s.X[r * d] > 0.5 ? s.X[r * d + 1] : 1.0 - s.X[r * d + 1];
        s.codes[r] = r < static_cast<std::size_t>(n_classes)
                         ? static_cast<std::int64_t>(r)
                         : static_cast<std::int64_t>(at * at * static_cast<double>(n_classes));
    }
    return s;
}

constexpr BoostSettings kSettings{20, 8, 0.3, 1.0, 5, 100, 0};

std::vector<double> scores_of(const Sample& s, const Forest& forest, std::size_t n_planes) {
    std::vector<double> scores(s.n * n_planes);
    forest_scores(s.rows(), forest, n_planes, scores.data());
    return scores;
}

std::size_t leaf_of(const Forest& forest, std::int32_t root, const double* row) {
    auto node = static_cast<std::size_t>(root);
    while (forest.feature[node] >= 0)
        node = static_cast<std::size_t>(forest.left[node] + (row[forest.feature[node]] > forest.number[node]));
    return node;
}

}  // namespace

TEST(trees_find_a_rule_that_no_plane_shows) {
    for (const std::int64_t n_classes : {2, 4}) {
        const Sample s = sample_of(2000, 6, n_classes, 1);
        const std::size_t n_planes = n_classes > 2 ? static_cast<std::size_t>(n_classes) : 1;
        const Forest forest = grow_forest(s.rows(), s.codes, s.weights, static_cast<std::size_t>(n_classes), kSettings);
        CHECK(is_sound(forest, n_planes, s.d), n_classes);
        CHECK(forest.roots.size() == n_planes * kSettings.n_trees, n_classes);
        const std::vector<double> scores = scores_of(s, forest, n_planes);
        std::size_t hits = 0;
        for (std::size_t r = 0; r < s.n; ++r) {
            const double* row = scores.data() + r * n_planes;
            const auto answer =
                n_planes == 1 ? std::int64_t{row[0] > 0.0} : std::max_element(row, row + n_planes) - row;
            hits += answer == s.codes[r];
        }
        CHECK(hits > s.n * 9 / 10, n_classes, hits);
    }
}

// What a leaf gives is what the gradients of its rows say, added one by one in floating point.
TEST(leaves_give_the_step_of_their_rows) {
    const Sample s = sample_of(700, 5, 2, 2);
    const Forest forest = grow_forest(s.rows(), s.codes, s.weights, 2, kSettings);
    double of_side[2] = {0.0, 0.0};
    for (const std::int64_t code : s.codes) of_side[code] += 1.0;
    std::vector<double> scores(s.n, 0.0);
    for (const std::int32_t root : forest.roots) {
        std::vector<double> g(forest.feature.size(), 0.0), h(g), n(g);
        for (std::size_t r = 0; r < s.n; ++r) {
            const double p = 1.0 / (1.0 + std::exp(-scores[r])), w = 350.0 / of_side[s.codes[r]];
            const std::size_t leaf = leaf_of(forest, root, s.X.data() + r * s.d);
            g[leaf] += w * (p - static_cast<double>(s.codes[r]));
            h[leaf] += w * p * (1.0 - p);
            n[leaf] += 1.0;
        }
        for (std::size_t r = 0; r < s.n; ++r) {
            const std::size_t leaf = leaf_of(forest, root, s.X.data() + r * s.d);
            const double step = -kSettings.rate * g[leaf] / (h[leaf] + kSettings.ridge);
            CHECK(std::abs(step - forest.number[leaf]) < 1e-6, r);
            CHECK(n[leaf] >= 5.0, r);
            scores[r] += forest.number[leaf];
        }
    }
    CHECK(scores == scores_of(s, forest, 1));
}

TEST(trees_that_look_at_fewer_columns_look_at_others_each_time) {
    const Sample s = sample_of(500, 40, 2, 3);
    BoostSettings few = kSettings;
    few.n_columns = 4;
    const Forest forest = grow_forest(s.rows(), s.codes, s.weights, 2, few);
    std::vector<bool> used(s.d, false);
    for (std::size_t t = 0; t < forest.roots.size(); ++t) {
        const std::size_t end =
            t + 1 < forest.roots.size() ? static_cast<std::size_t>(forest.roots[t + 1]) : forest.left.size();
        std::vector<bool> here(s.d, false);
        for (auto node = static_cast<std::size_t>(forest.roots[t]); node < end; ++node)
            if (forest.feature[node] >= 0) used[forest.feature[node]] = here[forest.feature[node]] = true;
        CHECK(std::ranges::count(here, true) <= 4, t);
    }
    CHECK(std::ranges::count(used, true) > 15);
}

TEST(rows_that_do_not_differ_give_trees_of_one_leaf) {
    Sample s = sample_of(60, 3, 2, 4);
    std::ranges::fill(s.X, 1e300);
    const Forest forest = grow_forest(s.rows(), s.codes, s.weights, 2, kSettings);
    CHECK(forest.feature.size() == kSettings.n_trees);
    for (const double score : scores_of(s, forest, 1)) CHECK(std::abs(score) < 1e-6);
}

TEST(extreme_values_have_bins_of_their_own) {
    Sample s = sample_of(200, 2, 2, 5);
    for (std::size_t r = 0; r < s.n; ++r) {
        s.codes[r] = r % 2;
        s.X[2 * r] = r % 2 ? 1.7e308 : -1.7e308;
        s.X[2 * r + 1] = r % 2 ? 5e-324 : 0.0;
    }
    const Forest forest = grow_forest(s.rows(), s.codes, s.weights, 2, kSettings);
    const std::vector<double> scores = scores_of(s, forest, 1);
    for (std::size_t r = 0; r < s.n; ++r) CHECK((scores[r] > 0.0) == (r % 2 == 1), r);
}

TEST(trees_that_lead_astray_are_refused) {
    const Sample s = sample_of(300, 4, 2, 6);
    const Forest forest = grow_forest(s.rows(), s.codes, s.weights, 2, kSettings);
    CHECK(is_sound(forest, 1, 4));
    CHECK(!is_sound(forest, 1, 1));
    CHECK(!is_sound(forest, 3, 4));
    Forest wrong = forest;
    wrong.left[0] = 0;
    CHECK(!is_sound(wrong, 1, 4));
    wrong = forest;
    wrong.left[0] = static_cast<std::int32_t>(wrong.left.size()) - 1;
    CHECK(!is_sound(wrong, 1, 4));
    wrong = forest;
    wrong.roots[0] = -1;
    CHECK(!is_sound(wrong, 1, 4));
    wrong = forest;
    wrong.number[1] = std::nan("");
    CHECK(!is_sound(wrong, 1, 4));
    wrong = forest;
    wrong.left.pop_back();
    CHECK(!is_sound(wrong, 1, 4));
}
