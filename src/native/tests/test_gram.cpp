#include <cmath>
#include <limits>

#include "check.hpp"
#include "steelyard/gram.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

struct Case {
    std::size_t n, d, n_classes;
    bool weighted;
};

// What add_grams and its reference are given; weights change sign, as retired rows have it.
template <class T>
struct Table {
    std::vector<T> X;
    std::vector<std::int32_t> codes;
    std::vector<double> weights, origin;

    explicit Table(const Case& c)
        : X(random_values<T>(c.n * c.d, 1)), codes(c.n), weights(c.weighted ? c.n : 0), origin(c.d) {
        for (std::size_t i = 0; i < c.n; ++i) codes[i] = static_cast<std::int32_t>(i * 7 % c.n_classes);
        for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = i % 3 ? 0.5 + static_cast<double>(i % 5) : -1.5;
        for (std::size_t k = 0; k < c.d; ++k) origin[k] = 0.1 * static_cast<double>(k % 4);
    }
};

template <class T>
std::vector<double> scalar_grams(const Table<T>& table, const Case& c) {
    const std::size_t size = c.d + 1;
    std::vector<double> grams(c.n_classes * size * size, 0.0), e(size);
    for (std::size_t i = 0; i < c.n; ++i) {
        for (std::size_t k = 0; k < c.d; ++k) e[k] = static_cast<double>(table.X[i * c.d + k]) - table.origin[k];
        e[c.d] = -1.0;
        double* gram = grams.data() + static_cast<std::size_t>(table.codes[i]) * size * size;
        const double weight = table.weights.empty() ? 1.0 : table.weights[i];
        for (std::size_t a = 0; a < size; ++a)
            for (std::size_t b = 0; b <= a; ++b) gram[a * size + b] += weight * e[a] * e[b];
    }
    return grams;
}

template <class T>
std::vector<double> native_grams(const Table<T>& table, const Case& c, unsigned n_threads) {
    std::vector<double> grams(c.n_classes * (c.d + 1) * (c.d + 1), 0.0);
    std::vector<double*> targets;
    for (std::size_t k = 0; k < c.n_classes; ++k) targets.push_back(grams.data() + k * (c.d + 1) * (c.d + 1));
    add_grams<T>({table.X.data(), c.n, c.d}, table.codes, table.weights, table.origin, targets, n_threads);
    return grams;
}

template <class T>
void compare(const Case& c) {
    const Table<T> table(c);
    const std::vector<double> expected = scalar_grams(table, c);
    on_every_level([&](const std::string& level) {
        const std::vector<double> grams = native_grams(table, c, 1);
        for (std::size_t at = 0; at < grams.size(); ++at)
            // Sums of at most n terms of a few units each, in another order.
            CHECK(std::fabs(grams[at] - expected[at]) <= 1e-14 * static_cast<double>(20 + 10 * c.n), level, c.n, c.d,
                  at);
    });
}

template <class T>
void check_largest(const std::string& level) {
    const T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
    for (std::size_t n = 0; n <= 80; ++n)
        for (std::size_t place = 0; place < n; ++place) {
            std::vector<T> values(n, T(-0.5));
            values[place] = T(-3);
            CHECK(largest_magnitude(std::span<const T>(values)) == 3.0, level, n, place);
            values[place] = -infinity;
            CHECK(largest_magnitude(std::span<const T>(values)) == static_cast<double>(infinity), level, n, place);
            values[place] = -nan;
            if (n > 1) values[(place + 1) % n] = infinity;
            CHECK(std::isnan(largest_magnitude(std::span<const T>(values))), level, n, place);
        }
}

}  // namespace

TEST(class_grams_equal_the_scalar_loop_at_tail_sizes) {
    for (std::size_t d = 0; d <= 40; ++d)
        for (const std::size_t n : {0, 1, 2, 5, 17})
            for (const bool weighted : {false, true}) {
                compare<double>({n, d, 3, weighted});
                compare<float>({n, d, 3, weighted});
            }
}

TEST(class_grams_equal_the_scalar_loop_across_row_blocks) {
    for (const std::size_t n : {383, 384, 385, 800}) compare<double>({n, 11, 1, true});
}

TEST(class_grams_do_not_depend_on_the_number_of_threads) {
    const Case c{2400, 170, 2, true};
    const Table<double> table(c);
    on_every_level([&](const std::string& level) {
        const std::vector<double> alone = native_grams(table, c, 1);
        for (const unsigned n_threads : {2u, 3u}) CHECK(native_grams(table, c, n_threads) == alone, level, n_threads);
    });
}

TEST(the_largest_magnitude_is_found_by_every_thread) {
    std::vector<double> values((1 << 20) + 3, 0.5);
    for (const std::size_t place : {std::size_t{0}, std::size_t{700'000}, values.size() - 1}) {
        values[place] = -2.0;
        CHECK(largest_magnitude(std::span<const double>(values), 3) == 2.0, place);
        values[place] = std::numeric_limits<double>::quiet_NaN();
        CHECK(std::isnan(largest_magnitude(std::span<const double>(values), 3)), place);
        values[place] = 0.5;
    }
}

TEST(a_sparse_gram_equals_the_gram_of_the_same_dense_rows) {
    const Case c{30, 13, 2, true};
    Table<double> table(c);
    for (double& shift : table.origin) shift = 0.0;
    std::vector<double> values;
    std::vector<std::int32_t> columns, row_starts{0};
    for (std::size_t i = 0; i < c.n; ++i) {
        for (std::size_t k = 0; k < c.d; ++k) {
            double& x = table.X[i * c.d + k];
            if ((i + k) % 3) x = 0.0;
            if (x == 0.0) continue;
            values.push_back(x);
            columns.push_back(static_cast<std::int32_t>(k));
        }
        row_starts.push_back(static_cast<std::int32_t>(values.size()));
    }
    const std::size_t size = (c.d + 1) * (c.d + 1);
    const std::vector<double> expected = scalar_grams(table, c);
    for (std::int32_t code = 0; code < 2; ++code) {
        std::vector<double> gram(size, 0.0);
        add_gram_sparse<std::int32_t>(values, columns, row_starts, table.codes, table.weights, code, c.d, gram.data());
        for (std::size_t at = 0; at < size; ++at)
            CHECK(std::fabs(gram[at] - expected[static_cast<std::size_t>(code) * size + at]) <= 1e-12, code, at);
    }
}

TEST(largest_magnitude_finds_numbers_infinities_and_nan_at_every_place) {
    CHECK(largest_magnitude(std::span<const double>()) == 0.0);
    on_every_level([](const std::string& level) {
        check_largest<double>(level);
        check_largest<float>(level);
    });
}
