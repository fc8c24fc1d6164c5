// Compares gradient boosting with sums computed row by row, and tests the validation of tree arrays.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "common/random.hpp"
#include "simd/simd.hpp"
#include "trees/gradient_boosting.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

struct Sample {
    std::size_t n, d;
    std::vector<double> X, weights;
    std::vector<std::int64_t> codes;

    Rows<double> rows() const { return {X.data(), n, d}; }
};

// The class depends on the interaction of two columns. All other columns are noise; every third one has four values.
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

constexpr BoostingSettings kSettings{20, 8, 0.3, 1.0, 5, 100, 0};

TreeEnsemble fit(const Sample& s, std::size_t n_classes, const BoostingSettings& settings) {
    return fit_gradient_boosting(s.rows(), s.codes, s.weights, n_classes, {}, settings);
}

std::vector<double> scores_of(const Sample& s, const TreeEnsemble& trees) {
    std::vector<double> scores(s.n * trees.n_outputs());
    TreeScorer(trees).score(s.rows(), scores.data());
    return scores;
}

std::size_t leaf_of(const TreeEnsemble& trees, std::int32_t root, const double* row) {
    auto node = static_cast<std::size_t>(root);
    while (trees.feature[node] >= 0)
        node = static_cast<std::size_t>(trees.left[node] + (row[trees.feature[node]] > trees.value[node]));
    return node;
}

}  // namespace

TEST(boosting_learns_interaction_of_two_columns) {
    for (const std::int64_t n_classes : {2, 4}) {
        const Sample s = sample_of(2000, 6, n_classes, 1);
        const std::size_t n_outputs = n_classes > 2 ? static_cast<std::size_t>(n_classes) : 1;
        const TreeEnsemble trees = fit(s, static_cast<std::size_t>(n_classes), kSettings);
        CHECK(is_sound(trees, s.d), n_classes);
        CHECK(trees.roots.size() == n_outputs * kSettings.n_trees, n_classes);
        const std::vector<double> scores = scores_of(s, trees);
        std::size_t hits = 0;
        for (std::size_t r = 0; r < s.n; ++r) {
            const double* row = scores.data() + r * n_outputs;
            const auto answer =
                n_outputs == 1 ? std::int64_t{row[0] > 0.0} : std::max_element(row, row + n_outputs) - row;
            hits += answer == s.codes[r];
        }
        CHECK(hits > s.n * 9 / 10, n_classes, hits);
    }
}

// Adds the gradients of the rows of a leaf one by one in floating point.
TEST(leaf_values_are_newton_steps_of_their_rows) {
    const Sample s = sample_of(700, 5, 2, 2);
    const TreeEnsemble trees = fit(s, 2, kSettings);
    double total[2] = {0.0, 0.0};
    for (const std::int64_t code : s.codes) total[code] += 1.0;
    std::vector<double> scores(s.n, 0.0);
    for (const std::int32_t root : trees.roots) {
        std::vector<double> g(trees.feature.size(), 0.0), h(g), n(g);
        for (std::size_t r = 0; r < s.n; ++r) {
            const double p = 1.0 / (1.0 + std::exp(-scores[r])), w = 350.0 / total[s.codes[r]];
            const std::size_t leaf = leaf_of(trees, root, s.X.data() + r * s.d);
            g[leaf] += w * (p - static_cast<double>(s.codes[r]));
            h[leaf] += w * p * (1.0 - p);
            n[leaf] += 1.0;
        }
        for (std::size_t r = 0; r < s.n; ++r) {
            const std::size_t leaf = leaf_of(trees, root, s.X.data() + r * s.d);
            const double step = -kSettings.learning_rate * g[leaf] / (h[leaf] + kSettings.l2_regularization);
            CHECK(std::abs(step - trees.value[leaf]) < 1e-6, r);
            CHECK(n[leaf] >= 5.0, r);
            scores[r] += trees.value[leaf];
        }
    }
    CHECK(scores == scores_of(s, trees));
}

TEST(column_sampling_draws_other_columns_for_each_tree) {
    const Sample s = sample_of(500, 40, 2, 3);
    BoostingSettings settings = kSettings;
    settings.max_columns = 4;
    const TreeEnsemble trees = fit(s, 2, settings);
    std::vector<bool> used(s.d, false);
    for (std::size_t t = 0; t < trees.roots.size(); ++t) {
        const std::size_t end =
            t + 1 < trees.roots.size() ? static_cast<std::size_t>(trees.roots[t + 1]) : trees.left.size();
        std::vector<bool> here(s.d, false);
        for (auto node = static_cast<std::size_t>(trees.roots[t]); node < end; ++node)
            if (trees.feature[node] >= 0) used[trees.feature[node]] = here[trees.feature[node]] = true;
        CHECK(std::ranges::count(here, true) <= 4, t);
    }
    CHECK(std::ranges::count(used, true) > 15);
}

TEST(constant_columns_give_trees_of_one_leaf) {
    Sample s = sample_of(60, 3, 2, 4);
    std::ranges::fill(s.X, 1e300);
    const TreeEnsemble trees = fit(s, 2, kSettings);
    CHECK(trees.feature.size() == kSettings.n_trees);
    for (const double score : scores_of(s, trees)) CHECK(std::abs(score) < 1e-6);
}

TEST(extreme_values_have_separate_bins) {
    Sample s = sample_of(200, 2, 2, 5);
    for (std::size_t r = 0; r < s.n; ++r) {
        s.codes[r] = r % 2;
        s.X[2 * r] = r % 2 ? 1.7e308 : -1.7e308;
        s.X[2 * r + 1] = r % 2 ? 5e-324 : 0.0;
    }
    const TreeEnsemble trees = fit(s, 2, kSettings);
    const std::vector<double> scores = scores_of(s, trees);
    for (std::size_t r = 0; r < s.n; ++r) CHECK((scores[r] > 0.0) == (r % 2 == 1), r);
}

TEST(is_sound_rejects_corrupt_arrays) {
    const Sample s = sample_of(300, 4, 2, 6);
    const TreeEnsemble trees = fit(s, 2, kSettings);
    CHECK(is_sound(trees, 4));
    CHECK(!is_sound(trees, 1));
    TreeEnsemble wrong = trees;
    wrong.left[0] = 0;
    CHECK(!is_sound(wrong, 4));
    wrong = trees;
    wrong.left[0] = static_cast<std::int32_t>(wrong.left.size()) - 1;
    CHECK(!is_sound(wrong, 4));
    wrong = trees;
    wrong.roots[0] = -1;
    CHECK(!is_sound(wrong, 4));
    wrong = trees;
    wrong.value[1] = std::nan("");
    CHECK(!is_sound(wrong, 4));
    wrong = trees;
    wrong.rows[0] += 1;
    CHECK(!is_sound(wrong, 4));
    wrong = trees;
    wrong.roots[1] = wrong.roots[0];
    CHECK(!is_sound(wrong, 4));
    wrong = trees;
    wrong.category_set[0] = 0;
    CHECK(!is_sound(wrong, 4));
    wrong = trees;
    wrong.left.pop_back();
    CHECK(!is_sound(wrong, 4));
}

TEST(threads_and_row_sampling_give_the_same_trees_and_scores) {
    Sample s = sample_of(40000, 10, 2, 7);
    for (std::size_t i = 0; i < s.X.size(); i += 7) s.X[i] = std::nan("");
    std::vector<std::uint8_t> is_category(s.d, 0);
    is_category[2] = 1;
    BoostingSettings settings = kSettings;
    settings.row_fraction = 0.7;
    settings.max_bins = 255;
    const TreeEnsemble one = fit_gradient_boosting(s.rows(), s.codes, s.weights, 2, is_category, settings);
    settings.n_threads = 3;
    const TreeEnsemble three = fit_gradient_boosting(s.rows(), s.codes, s.weights, 2, is_category, settings);
    CHECK(is_sound(one, s.d));
    CHECK(one.feature == three.feature && one.value == three.value && one.set_words == three.set_words);
    const TreeScorer scorer(one);
    std::vector<double> scores(s.n), parallel(s.n);
    scorer.score(s.rows(), scores.data());
    scorer.score(s.rows(), parallel.data(), 3);
    CHECK(scores == parallel);
    for (std::size_t r = 0; r < 20; ++r) {
        double score = 0.0;
        scorer.score({s.X.data() + r * s.d, 1, s.d}, &score);
        CHECK(score == scores[r], r);
    }
}

TEST(trees_are_the_same_on_every_level) {
    Sample s = sample_of(3000, 10, 2, 11);
    for (std::size_t i = 0; i < s.X.size(); i += 7) s.X[i] = std::nan("");
    BoostingSettings settings = kSettings;
    settings.max_leaves = 31;
    for (const std::size_t max_bins : {16, 64, 255}) {
        settings.max_bins = max_bins;
        settings.pack_sums = max_bins != 64;
        use_level("baseline");
        const TreeEnsemble expected = fit(s, 2, settings);
        on_every_level([&](const std::string& level) {
            const TreeEnsemble trees = fit(s, 2, settings);
            CHECK(trees.feature == expected.feature && trees.value == expected.value, level, max_bins);
            CHECK(trees.missing_left == expected.missing_left, level, max_bins);
        });
    }
}

TEST(split_scan_chooses_the_bins_with_enough_gain_on_every_level) {
    on_every_level([](const std::string& level) {
        for (std::size_t n = 1; n <= 40; ++n) {
            std::vector<std::int64_t> bins(2 * n), left(2 * n);
            std::vector<std::uint16_t> chosen(n);
            SplitQuery query{bins.data(), n, {5, (7 << 16) + 3}, {5, (7 << 16) + 3}, 16, 0.5, 4, 2.0, 30.0};
            for (std::size_t b = 0; b < n; ++b) {
                bins[2 * b] = static_cast<std::int64_t>(200.0 * uniform_at(1, n, b)) - 100;
                bins[2 * b + 1] = (static_cast<std::int64_t>(50.0 * uniform_at(2, n, b)) << 16) + b % 3;
                query.total[0] += bins[2 * b];
                query.total[1] += bins[2 * b + 1];
            }
            const std::size_t n_chosen = loops().split.scan(query, left.data(), chosen.data());
            std::size_t found = 0;
            std::int64_t gradient = query.start[0], hessian = query.start[1];
            for (std::size_t b = 0; b < n; ++b) {
                gradient += bins[2 * b];
                hessian += bins[2 * b + 1];
                CHECK(left[2 * b] == gradient && left[2 * b + 1] == hessian, level, n, b);
                const std::int64_t rows = hessian & 0xffff, others = (query.total[1] & 0xffff) - rows;
                const double gl = static_cast<double>(gradient), gr = static_cast<double>(query.total[0]) - gl;
                const double hl = 0.5 * static_cast<double>(hessian >> 16);
                const double hr = 0.5 * static_cast<double>(query.total[1] >> 16) - hl;
                const bool is_better = gl * gl / (hl + 2.0) + gr * gr / (hr + 2.0) > 30.0;
                if (rows < 4 || others < 4 || !is_better) continue;
                CHECK(found < n_chosen && chosen[found] == b, level, n, b);
                ++found;
            }
            CHECK(found == n_chosen, level, n);
        }
    });
}

TEST(packed_split_scan_chooses_the_bins_with_enough_gain_on_every_level) {
    constexpr int kCountBits = 10, kGradientShift = 30;
    const auto packed = [](std::int64_t g, std::int64_t h, std::int64_t rows) {
        return (g << kGradientShift) + (h << kCountBits) + rows;
    };
    on_every_level([&](const std::string& level) {
        for (std::size_t n = 1; n <= 40; ++n) {
            std::vector<std::int64_t> bins(n), left(n), g(n), h(n), rows(n);
            std::vector<std::uint16_t> chosen(n);
            std::int64_t all_g = 5, all_h = 7, all_rows = 3;
            for (std::size_t b = 0; b < n; ++b) {
                const auto bin_g = static_cast<std::int64_t>(200.0 * uniform_at(1, n, b)) - 100;
                const auto bin_h = static_cast<std::int64_t>(50.0 * uniform_at(2, n, b));
                const auto bin_rows = static_cast<std::int64_t>(b % 3);
                bins[b] = packed(bin_g, bin_h, bin_rows);
                g[b] = all_g += bin_g, h[b] = all_h += bin_h, rows[b] = all_rows += bin_rows;
            }
            const PackedSplitQuery query{
                bins.data(), n,   packed(5, 7, 3), packed(all_g, all_h, all_rows), kCountBits, kGradientShift, 0.5, 4,
                2.0,         30.0};
            const std::size_t n_chosen = loops().split.scan_packed(query, left.data(), chosen.data());
            std::size_t found = 0;
            for (std::size_t b = 0; b < n; ++b) {
                CHECK(left[b] == packed(g[b], h[b], rows[b]), level, n, b);
                const double gl = static_cast<double>(g[b]), gr = static_cast<double>(all_g - g[b]);
                const double hl = 0.5 * static_cast<double>(h[b]), hr = 0.5 * static_cast<double>(all_h) - hl;
                const bool is_better = gl * gl / (hl + 2.0) + gr * gr / (hr + 2.0) > 30.0;
                if (rows[b] < 4 || all_rows - rows[b] < 4 || !is_better) continue;
                CHECK(found < n_chosen && chosen[found] == b, level, n, b);
                ++found;
            }
            CHECK(found == n_chosen, level, n);
        }
    });
}

TEST(contributions_add_up_to_the_score) {
    const Sample s = sample_of(500, 6, 3, 8);
    const TreeScorer scorer(fit(s, 3, kSettings));
    std::vector<double> scores(s.n * 3), values(s.n * 3 * (s.d + 1));
    scorer.score(s.rows(), scores.data());
    scorer.contributions(s.rows(), values.data());
    for (std::size_t i = 0; i < scores.size(); ++i) {
        double sum = 0.0;
        for (std::size_t c = 0; c <= s.d; ++c) sum += values[i * (s.d + 1) + c];
        CHECK(std::abs(sum - scores[i]) < 1e-9, i);
    }
}
