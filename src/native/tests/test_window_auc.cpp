// Compares the AUC of a sliding window with a count of all pairs.
#include <cstdint>
#include <deque>
#include <vector>

#include "check.hpp"
#include "common/random.hpp"
#include "metrics/window_auc.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

struct ScoredRow {
    std::int32_t code;
    std::vector<double> scores;
};

// Returns twice the number of pairs in which a row of class i has a higher score than a row of class j.
// A tie counts as half a pair.
std::int64_t doubled_wins(const std::deque<ScoredRow>& rows, std::int32_t i, std::int32_t j, std::size_t column) {
    std::int64_t wins = 0;
    for (const ScoredRow& a : rows)
        for (const ScoredRow& b : rows)
            if (a.code == i && b.code == j)
                wins += a.scores[column] > b.scores[column] ? 2 : a.scores[column] == b.scores[column];
    return wins;
}

// Returns row t of a stream with class codes and `distinct` different scores.
ScoredRow row_at(std::size_t t, std::size_t n_columns, double distinct, std::uint64_t seed) {
    const auto n_classes = static_cast<double>(n_columns == 1 ? 2 : n_columns);
    ScoredRow row{static_cast<std::int32_t>(uniform_at(seed, t) * uniform_at(seed, t, 1) * n_classes), {}};
    for (std::size_t c = 0; c < n_columns; ++c)
        row.scores.push_back(static_cast<double>(static_cast<int>(uniform_at(seed, t, 2 + c) * distinct)) -
                             distinct / 2);
    return row;
}

}  // namespace

TEST(wins_of_a_window_equal_a_count_of_all_its_pairs) {
    for (const std::size_t n_columns : {1, 2, 4})
        for (const std::size_t window : {1, 2, 50, 300})
            for (const double distinct : {1.0, 8.0, 1e6}) {
                AucWindow kept(window, n_columns);
                std::deque<ScoredRow> rows;
                std::size_t t = 0;
                for (const std::size_t batch : {1, 3, 0, 40, 200, 1, 1, 64, 500, 7}) {
                    std::vector<std::int32_t> codes;
                    std::vector<double> scores;
                    for (std::size_t r = 0; r < batch; ++r, ++t) {
                        rows.push_back(row_at(t, n_columns, distinct, 3));
                        codes.push_back(rows.back().code);
                        scores.insert(scores.end(), rows.back().scores.begin(), rows.back().scores.end());
                        if (rows.size() > window) rows.pop_front();
                    }
                    kept.push(codes, scores.data());
                    std::vector<std::int64_t> wins(n_columns == 1 ? 1 : n_columns * n_columns);
                    kept.doubled_wins(wins.data());
                    CHECK(kept.size() == rows.size(), n_columns, window, t);
                    if (n_columns == 1) {
                        CHECK(wins[0] == doubled_wins(rows, 1, 0, 0), window, distinct, t);
                        continue;
                    }
                    for (std::size_t i = 0; i < n_columns; ++i)
                        for (std::size_t j = 0; j < n_columns; ++j)
                            if (i != j)
                                CHECK(wins[i * n_columns + j] == doubled_wins(rows, static_cast<std::int32_t>(i),
                                                                              static_cast<std::int32_t>(j), i),
                                      window, distinct, t, i, j);
                }
                std::vector<std::int32_t> codes(kept.size());
                std::vector<double> scores(kept.size() * n_columns);
                kept.content(codes.data(), scores.data());
                for (std::size_t r = 0; r < rows.size(); ++r) {
                    CHECK(codes[r] == rows[r].code, r);
                    for (std::size_t c = 0; c < n_columns; ++c)
                        CHECK(scores[r * n_columns + c] == rows[r].scores[c], r);
                }
            }
}

TEST(tall_tree_counts_correctly_after_it_was_emptied) {
    RankTree tree;
    for (const std::size_t n : {1, 31, 32, 33, 5000}) {
        for (std::size_t t = 0; t < n; ++t) tree.insert(uniform_at(1, t), t % 3 == 0);
        for (std::size_t t = 0; t < n; ++t) tree.erase(uniform_at(1, (t * 7919) % n), (t * 7919) % n % 3 == 0);
        CHECK(tree.doubled_wins() == 0, n);
    }
    tree.insert(1.0, true);
    tree.insert(0.0, false);
    tree.insert(1.0, false);
    CHECK(tree.doubled_wins() == 3);
}
