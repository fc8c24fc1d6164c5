// Hashes of rows, and the index that finds rows by them, against a list that is searched.
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

TEST(zeros_of_both_signs_have_no_share_in_a_hash) {
    CHECK(hash_value(3, 0.0) == 0);
    CHECK(hash_value(3, -0.0) == 0);
    CHECK(hash_value(3, std::numeric_limits<double>::denorm_min()) != 0);
}

TEST(a_float_hashes_as_the_double_it_is) {
    for (const float value : random_values<float>(100, 1))
        CHECK(hash_value(7, static_cast<double>(value)) == hash_value(7, double{value}));
    CHECK(hash_value(7, 0.1F) != hash_value(7, 0.1));
}

TEST(a_hash_tells_columns_values_and_signs_apart) {
    std::set<std::uint64_t> seen;
    std::size_t n = 0;
    for (std::size_t column = 0; column < 200; ++column)
        for (const double value : {1.0, -1.0, 2.0, 0.5, 1e300, 5e-324, 1.0 + 0x1p-52}) {
            seen.insert(hash_value(column, value));
            ++n;
        }
    CHECK(seen.size() == n);
}

TEST(scrambling_loses_no_bit) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t bit = 0; bit < 64; ++bit) seen.insert(scramble(std::uint64_t{1} << bit));
    for (std::uint64_t number = 0; number < 10000; ++number) seen.insert(scramble(number));
    CHECK(seen.size() == 10000 + 64 - 14);  // 1, 2, 4, ..., 8192 are among both
}

// Rows come, go and change their numbers; hashes are few, so that chains and places in the table collide.
TEST(an_index_finds_what_a_search_through_a_list_finds) {
    for (const std::uint64_t n_hashes : {1, 3, 50, 1000000}) {
        RowIndex index;
        std::vector<std::uint64_t> hashes;  // by row number, 0 .. size - 1
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
                hashes.push_back(mix_bits(t) % n_hashes * 64);  // equal low bits: all begin at the same place
                index.insert(static_cast<std::uint32_t>(hashes.size() - 1), hashes.back());
            } else {
                const auto gone = static_cast<std::uint32_t>(uniform_at(9, t, 1) * static_cast<double>(hashes.size()));
                const auto last = static_cast<std::uint32_t>(hashes.size() - 1);
                index.erase(gone);
                if (gone != last) {
                    index.renumber(last, gone);
                    hashes[gone] = hashes[last];
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
        // Inserted in the order that the index gives, rows form the same chains.
        RowIndex again;
        const auto order = index.order(static_cast<std::uint32_t>(hashes.size()));
        CHECK(order.size() == hashes.size(), n_hashes);
        for (const std::uint32_t row : order) again.insert(row, hashes[row]);
        for (const std::uint64_t hash : hashes) CHECK(again.first(hash) == index.first(hash), n_hashes);
        for (std::uint32_t row = 0; row < hashes.size(); ++row) CHECK(again.next(row) == index.next(row), n_hashes);
    }
}
