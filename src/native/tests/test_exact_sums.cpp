#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "check.hpp"
#include "proximal/gram.hpp"
#include "proximal/sufficient_statistics.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

int128 random_wide(std::mt19937_64& bits, unsigned width) {
    const auto high = static_cast<uint128>(bits()), low = static_cast<uint128>(bits());
    const auto value = static_cast<int128>((high << 64 | low) >> (128 - width));
    return bits() % 2 ? value : -value;
}

std::vector<double> whole_numbers(std::size_t n, double bound, unsigned seed) {
    std::mt19937_64 bits(seed);
    std::uniform_real_distribution<double> uniform(-bound, bound);
    std::vector<double> values(n);
    for (double& value : values) value = std::floor(uniform(bits));
    return values;
}

Triangle one_by_one(const std::vector<double>& X, std::size_t d, std::int64_t weight) {
    Triangle sums(d + 1);
    std::vector<Big> row(d);
    for (std::size_t i = 0; i < X.size() / d; ++i) {
        for (std::size_t j = 0; j < d; ++j) row[j] = Big::of_whole(X[i * d + j]);
        sums.add_row(row, Big(weight));
    }
    return sums;
}

void check_equal(const Triangle& sums, const Triangle& expected, const std::string& where) {
    bool equal = true;
    for (std::size_t at = 0; at < Triangle::entries(expected.size()); ++at) equal &= sums.get(at) == expected.get(at);
    CHECK(equal, where);
}

template <class T>
void compare_products(std::size_t n, std::size_t d, std::size_t n_wide) {
    std::vector<double> X = whole_numbers(n * d, 1000.0, 1);
    const std::vector<double> wide = whole_numbers(n * d, std::is_same_v<T, float> ? 0x1p23 : 0x1p40, 2);
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < n_wide; ++j) X[i * d + j * d / std::max<std::size_t>(n_wide, 1)] = wide[i * d + j];
    const std::vector<T> values(X.begin(), X.end());
    const Triangle expected = one_by_one(X, d, -3);
    std::vector<double> inverse(d, 1.0), origin(d, 0.0), largest(d, 0.0), remainder(d, 0.0);
    std::vector<std::uint8_t> beyond(n);
    std::vector<std::uint32_t> index(n);
    for (std::uint32_t i = 0; i < n; ++i) index[i] = i;
    on_every_level([&](const std::string& level) {
        for (const unsigned n_threads : {1u, 3u}) {
            const std::string where = text(level, n, d, n_wide, n_threads);
            scan_rows<T>({values.data(), n, d}, {inverse.data(), origin.data(), nullptr}, largest, remainder, beyond,
                         n_threads);
            for (std::size_t i = 0; i < n; ++i) CHECK(!beyond[i], where);
            for (std::size_t j = 0; j < d; ++j) CHECK(remainder[j] == 0.0, where);
            Triangle sums(d + 1);
            add_products<T>({values.data(), n, d}, index, {inverse.data(), origin.data(), nullptr}, largest, -3, sums,
                            n_threads);
            check_equal(sums, expected, where);
        }
    });
}

bool same_state(const ExactState& a, const ExactState& b, std::int32_t slot) {
    const Triangle left = folded(a, {&slot, 1}, 1).formed(), right = folded(b, {&slot, 1}, 1).formed();
    for (std::size_t at = 0; at < Triangle::entries(left.size()); ++at)
        if (!(left.get(at) == right.get(at))) return false;
    return true;
}

ExactState state_of(std::size_t d) {
    ExactState state;
    state.n_features = d;
    return state;
}

}  // namespace

TEST(big_arithmetic_equals_128_bit_arithmetic) {
    std::mt19937_64 bits(1);
    for (int k = 0; k < 2000; ++k) {
        const int128 a = random_wide(bits, 1 + static_cast<int>(bits() % 120)),
                     b = random_wide(bits, 1 + static_cast<int>(bits() % 120));
        const int128 c = random_wide(bits, 1 + static_cast<int>(bits() % 60)),
                     e = random_wide(bits, 1 + static_cast<int>(bits() % 60));
        CHECK((Big::of(a) + Big::of(b)).narrow() == a + b, text(k));
        CHECK((Big::of(a) - Big::of(b)).narrow() == a - b, text(k));
        CHECK((Big::of(c) * Big::of(e)).narrow() == c * e, text(k));
        CHECK((Big::of(a) < Big::of(b)) == (a < b), text(k));
        const auto shift = static_cast<unsigned>(bits() % 60);
        CHECK((Big::of(c) << shift).narrow() == c * (int128{1} << shift), text(k));
        CHECK((Big::of(a) >> shift).narrow() == a >> shift, text(k));
        CHECK(Big::of(a).scaled(0) == static_cast<double>(a), text(k));
        const int128 n = (c < 0 ? -c : c) + 1;
        const int128 quotient = a / n - (a % n < 0);
        CHECK(divide(Big::of(a), Big::of(n)).narrow() == quotient, text(k));
        CHECK(divide(Big::of(a) * Big::of(b), Big::of(n) << 70) == divide(Big::of(a) * Big::of(b), Big::of(n)) >> 70,
              text(k));
    }
}

TEST(digit_products_equal_integer_products_at_every_level) {
    for (const std::size_t n : {1, 9, 400, 2500})
        for (const std::size_t d : {1, 7, 8, 23})
            for (const std::size_t n_wide : {std::size_t{0}, d / 4, d}) {
                compare_products<double>(n, d, n_wide);
                compare_products<float>(n, d, n_wide);
            }
}

// Adds blocks with one digit, with two digits for some or all features, and rows that need more digits.
TEST(unscanned_rows_are_summed_exactly_at_every_level) {
    constexpr std::size_t n = 4000, n_classes = 3;
    for (const std::size_t d : {3, 23}) {
        std::vector<double> X = whole_numbers(n * d, 1000.0, 5);
        const std::vector<double> wide = whole_numbers(n * d, 0x1p40, 6);
        for (std::size_t i = 1500; i < 2800; ++i)
            for (std::size_t j = 0; j < (i < 2000 ? 1 : d); ++j) X[i * d + j] = wide[i * d + j];
        for (const std::size_t i : {5, 1700, 2500}) X[i * d + d - 1] = 0x1p50;
        std::vector<std::uint32_t> index[n_classes];
        std::vector<double> near[n_classes];
        for (std::uint32_t i = 0; i < n; ++i) {
            index[i % n_classes].push_back(i);
            if (X[i * d + d - 1] != 0x1p50)
                near[i % n_classes].insert(near[i % n_classes].end(), X.begin() + i * d, X.begin() + (i + 1) * d);
        }
        const std::vector<double> inverse(d, 1.0), origin(d, 0.0), slack(d, 0.0);
        const Steps steps{inverse.data(), origin.data(), slack.data()};
        on_every_level([&](const std::string& level) {
            for (const unsigned n_threads : {1u, 3u}) {
                std::vector<Triangle> sums(n_classes, Triangle(d + 1));
                std::vector<Share> shares;
                for (std::size_t c = 0; c < n_classes; ++c) shares.push_back({index[c], &sums[c]});
                std::vector<std::uint32_t> beyond;
                CHECK(add_unscanned<double>({X.data(), n, d}, steps, shares, beyond, n_threads), level);
                std::sort(beyond.begin(), beyond.end());
                CHECK((beyond == std::vector<std::uint32_t>{5, 1700, 2500}), level);
                for (std::size_t c = 0; c < n_classes; ++c)
                    check_equal(sums[c], one_by_one(near[c], d, 1), text(level, d, n_threads, c));
                std::vector<double> halves = X;
                halves[3999 * d + d - 1] += 0.5;  // value that is not representable without rounding
                CHECK(!add_unscanned<double>({halves.data(), n, d}, steps, shares, beyond, n_threads), level);
            }
        });
    }
}

TEST(sums_at_the_digit_limits_are_exact) {
    constexpr std::size_t n = 8192 + 5, d = 3;
    for (const double value : {0x1p20 - 1.0, -0x1p20, 0x1p20, 0x1p41, -0x1p41, 0x1p41 - 1.0}) {
        const std::vector<double> X(n * d, value), inverse(d, 1.0), origin(d, 0.0), largest(d, std::fabs(value));
        std::vector<std::uint32_t> index(n);
        for (std::uint32_t i = 0; i < n; ++i) index[i] = i;
        Triangle sums(d + 1);
        add_products<double>({X.data(), n, d}, index, {inverse.data(), origin.data(), nullptr}, largest, 1, sums, 1);
        check_equal(sums, one_by_one(X, d, 1), text(value));
    }
}

TEST(added_and_removed_rows_leave_the_sums_of_the_remaining_rows) {
    constexpr std::size_t n = 900, d = 5;
    std::vector<double> X = random_values<double>(n * d, 3);
    for (std::size_t i = 0; i < n; ++i) X[i * d] = std::floor(4.0 * X[i * d]);
    X[700 * d + 1] = 1e70;
    X[701 * d + 2] = -1e30;
    std::vector<std::int32_t> slots(n);
    for (std::size_t i = 0; i < n; ++i) slots[i] = static_cast<std::int32_t>(i % 3);
    ExactState lived = state_of(d);
    const auto part = [&](std::size_t begin, std::size_t end) {
        return ExactBatch<double>{
            {X.data() + begin * d, end - begin, d}, std::span(slots).subspan(begin, end - begin), {}};
    };
    for (std::size_t i = 0; i < n; i += 90) add_rows(lived, part(i, i + 90), 1);
    ExactState fresh = state_of(d);
    freeze_quantizer(fresh, lived.quantizer);
    add_rows(fresh, part(450, n), 1);
    for (std::size_t i = 0; i < 450; i += 50)
        CHECK(remove_rows(lived, part(i, i + 50), 1).refusal == Refusal::none, text(i));
    for (const std::int32_t slot : {0, 1, 2}) CHECK(same_state(lived, fresh, slot), text(slot));
    ExactState before = lived;
    CHECK(remove_rows(lived, part(0, 450), 1).refusal != Refusal::none, "more rows are removed than were added");
    for (const std::int32_t slot : {0, 1, 2}) CHECK(same_state(lived, before, slot), text(slot));
    CHECK(remove_rows(lived, part(450, n), 1).refusal == Refusal::none, "the rest");
    for (const std::size_t slot : {0, 1, 2}) CHECK(!has_rows(lived, slot), text(slot));
}

TEST(view_does_not_depend_on_the_quantizer) {
    constexpr std::size_t n = 300, d = 4;
    const std::vector<double> X = whole_numbers(n * d, 50.0, 4);
    const std::vector<std::int32_t> slots(n, 0);
    Quantizer quantizer{{0, -3, -20, 0}, {0.0, 5.0, 0.0, -100.0}, {0, 0, 0, 0}, {0, 0, 0, 0}};
    ExactState fitted = state_of(d), given = state_of(d);
    freeze_quantizer(given, quantizer);
    for (ExactState* state : {&fitted, &given}) add_rows(*state, ExactBatch<double>{{X.data(), n, d}, slots, {}}, 1);
    const ExactView one(fitted, SlotGroups{{0}}, 1), other(given, SlotGroups{{0}}, 1);
    CHECK(one.canonical(0) == other.canonical(0), "canonical");
    CHECK(one.origin() == other.origin(), "origin");
    std::vector<double> a((d + 1) * (d + 1)), b(a);
    one.matrix(0, a.data());
    other.matrix(0, b.data());
    CHECK(a == b, "matrix");
}

TEST(nonfinite_values_throw_and_change_nothing) {
    std::vector<double> X = random_values<double>(400, 5);
    const std::vector<std::int32_t> slots(400, 0);
    ExactState state = state_of(1);
    add_rows(state, ExactBatch<double>{{X.data(), 400, 1}, slots, {}}, 1);
    const ExactState before = state;
    for (const double bad :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 1.1e300}) {
        X[399] = bad;
        bool thrown = false;
        try {
            add_rows(state, ExactBatch<double>{{X.data(), 400, 1}, slots, {}}, 1);
        } catch (const BadValues&) {
            thrown = true;
        }
        CHECK(thrown, text(bad));
        CHECK(same_state(state, before, 0), text(bad));
    }
}

TEST(sums_of_rows_are_semidefinite_and_impossible_sums_are_not) {
    constexpr std::size_t n = 300, d = 4;
    std::vector<double> X = whole_numbers(n * d, 50.0, 4);
    for (std::size_t i = 0; i < n; ++i) X[i * d + 3] = X[i * d] - 2.0 * X[i * d + 1];  // linearly dependent feature
    const std::vector<std::int32_t> slots(n, 0);
    ExactState state = state_of(d);
    add_rows(state, ExactBatch<double>{{X.data(), n, d}, slots, {}}, 1);
    on_every_level([&](const std::string& level) {
        CHECK(ExactView(state, SlotGroups{{0}}, 1).is_semidefinite(0, 1e-8), level);
        // Removes a row that was never added and is not in the span of the added rows.
        ExactState less = state;
        const std::vector<double> unknown{3.0, 5.0, 1.0, 40.0};
        remove_rows(less, ExactBatch<double>{{unknown.data(), 1, d}, {slots.data(), 1}, {}}, 1);
        CHECK(!ExactView(less, SlotGroups{{0}}, 1).is_semidefinite(0, 1e-8), level);
        // Features into which values with coarser steps were merged are ignored.
        less.quantizer.mixed[3] = 1;
        CHECK(ExactView(less, SlotGroups{{0}}, 1).is_semidefinite(0, 1e-8), level);
    });
}
