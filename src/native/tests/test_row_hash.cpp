// Tests row hashes, and compares the row index with a linear search.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "check.hpp"
#include "common/random.hpp"
#include "proximal/row_hash.hpp"
#include "svm/row_index.hpp"

using namespace steelyard;
using namespace steelyard::tests;

TEST(zeros_do_not_contribute_to_a_hash) {
    CHECK(hash_value(3, 0.0) == 0);
    CHECK(hash_value(3, -0.0) == 0);
    CHECK(hash_value(3, std::numeric_limits<double>::denorm_min()) != 0);
}

TEST(float_and_double_have_equal_hashes) {
    for (const float value : random_values<float>(100, 1))
        CHECK(hash_value(7, static_cast<double>(value)) == hash_value(7, double{value}));
    CHECK(hash_value(7, 0.1F) != hash_value(7, 0.1));
}

TEST(hash_differs_for_columns_values_and_signs) {
    std::set<std::uint64_t> seen;
    std::size_t n = 0;
    for (std::size_t column = 0; column < 200; ++column)
        for (const double value : {1.0, -1.0, 2.0, 0.5, 1e300, 5e-324, 1.0 + 0x1p-52}) {
            seen.insert(hash_value(column, value));
            ++n;
        }
    CHECK(seen.size() == n);
}

TEST(scramble_is_injective) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t bit = 0; bit < 64; ++bit) seen.insert(scramble(std::uint64_t{1} << bit));
    for (std::uint64_t number = 0; number < 10000; ++number) seen.insert(scramble(number));
    CHECK(seen.size() == 10000 + 64 - 14);  // the numbers 1, 2, 4, ..., 8192 are in both sets
}

// Inserts, removes and renumbers rows. The small number of hashes causes collisions.
TEST(row_index_equals_a_linear_search) {
    for (const std::uint64_t n_hashes : {1, 3, 50, 1000000}) {
        RowIndex index;
        std::vector<std::uint64_t> hashes;  // hash of each row
        const auto rows_with = [&](std::uint64_t hash) {
            std::vector<std::uint32_t> rows;
            for (std::uint32_t row = index.first(hash); row != RowIndex::kNone; row = index.next(row))
                rows.push_back(row);
            std::sort(rows.begin(), rows.end());
            return rows;
        };
        for (std::size_t t = 0; t < 1500; ++t) {
            const bool grows = hashes.empty() || uniform_at(9, t) < (t < 1000 ? 0.7 : 0.3);
            if (grows) {
                hashes.push_back(mix_bits(t) % n_hashes * 64);  // equal low bits cause collisions in the table
                index.insert(static_cast<std::uint32_t>(hashes.size() - 1), hashes.back());
            } else {
                const auto removed =
                    static_cast<std::uint32_t>(uniform_at(9, t, 1) * static_cast<double>(hashes.size()));
                const auto last = static_cast<std::uint32_t>(hashes.size() - 1);
                index.erase(removed);
                if (removed != last) {
                    index.renumber(last, removed);
                    hashes[removed] = hashes[last];
                }
                hashes.pop_back();
            }
            if (t % 50 != 0 || hashes.empty()) continue;
            for (const std::uint64_t hash : {hashes.front(), hashes.back(), std::uint64_t{1}}) {
                std::vector<std::uint32_t> expected;
                for (std::uint32_t row = 0; row < hashes.size(); ++row)
                    if (hashes[row] == hash) expected.push_back(row);
                CHECK(rows_with(hash) == expected, n_hashes, t);
            }
        }
        // Inserting rows in the order of the index gives the same chains.
        RowIndex again;
        const auto order = index.order(static_cast<std::uint32_t>(hashes.size()));
        CHECK(order.size() == hashes.size(), n_hashes);
        for (const std::uint32_t row : order) again.insert(row, hashes[row]);
        for (const std::uint64_t hash : hashes) CHECK(again.first(hash) == index.first(hash), n_hashes);
        for (std::uint32_t row = 0; row < hashes.size(); ++row) CHECK(again.next(row) == index.next(row), n_hashes);
    }
}
