#include <cmath>
#include <limits>

#include "check.hpp"
#include "kernels/kernels.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

const KernelSpec kSpecs[] = {{KernelKind::linear, 1.0, 0.0, 3},     {KernelKind::polynomial, 0.3, 0.5, 3},
                             {KernelKind::polynomial, 0.3, 0.5, 0}, {KernelKind::rbf, 0.2, 0.0, 3},
                             {KernelKind::laplacian, 0.2, 0.0, 3},  {KernelKind::sigmoid, 0.1, 0.3, 3}};

template <class T>
double scalar_kernel(const KernelSpec& spec, const T* x, const T* z, std::size_t d) {
    double product = 0.0, squared = 0.0, absolute = 0.0;
    for (std::size_t k = 0; k < d; ++k) {
        const double a = static_cast<double>(x[k]), b = static_cast<double>(z[k]);
        product += a * b;
        squared += (a - b) * (a - b);
        absolute += std::fabs(a - b);
    }
    switch (spec.kind) {
        case KernelKind::linear: return product;
        case KernelKind::polynomial: return std::pow(spec.gamma * product + spec.coef0, spec.degree);
        case KernelKind::rbf: return std::exp(-spec.gamma * squared);
        case KernelKind::laplacian: return std::exp(-spec.gamma * absolute);
        case KernelKind::sigmoid: return std::tanh(spec.gamma * product + spec.coef0);
        case KernelKind::squared_distance: return squared;
        case KernelKind::cityblock: return absolute;
        case KernelKind::lookup: break;  // this kind is not a function of two vectors
    }
    return 0.0;
}

// Tolerance for d <= 40 features of unit size: a few dozen rounding errors, amplified by the third power.
template <class Sum>
bool is_near(Sum value, double expected) {
    const double tolerance = 400.0 * static_cast<double>(std::numeric_limits<Sum>::epsilon());
    return std::fabs(static_cast<double>(value) - expected) <= tolerance * (1.0 + std::fabs(expected));
}

template <class T, class Sum>
void compare_at(std::size_t n_x, std::size_t n_z, std::size_t d) {
    const std::vector<T> X = random_values<T>(n_x * d, 1), Z = random_values<T>(n_z * d, 2);
    const PackedRows<T, Sum> packed(Rows<T>{Z.data(), n_z, d});
    const std::size_t ld = n_z + 3;  // values outside the block must not change, so rows are longer than needed
    for (const KernelSpec& spec : kSpecs)
        on_every_level([&](const std::string& level) {
            std::vector<Sum> block(n_x * ld, Sum(-7)), row(n_z);
            kernel_rows(spec, {X.data(), n_x, d}, packed, block.data(), ld, 1);
            for (std::size_t i = 0; i < n_x; ++i) {
                kernel_row(spec, X.data() + i * d, packed, row.data());
                for (std::size_t j = 0; j < n_z; ++j) {
                    const double expected = scalar_kernel(spec, X.data() + i * d, Z.data() + j * d, d);
                    CHECK(is_near(block[i * ld + j], expected), level, static_cast<int>(spec.kind), n_x, n_z, d);
                    CHECK(row[j] == block[i * ld + j], level, static_cast<int>(spec.kind), n_x, n_z, d);
                }
                for (std::size_t j = n_z; j < ld; ++j) CHECK(block[i * ld + j] == Sum(-7), level, n_x, n_z, d);
            }
        });
}

template <class T, class Sum>
void compare_at_tail_sizes() {
    for (const std::size_t n_x : {1, 3, 4, 5, 8, 9, 17})
        for (const std::size_t d : {0, 1, 2, 3, 8, 21, 40}) compare_at<T, Sum>(n_x, 19, d);
    for (std::size_t n_z = 0; n_z <= 70; ++n_z) compare_at<T, Sum>(9, n_z, 5);
}

// Evaluates exp(-t) and tanh(t) for given t by the laplacian and sigmoid kernels of one feature.
template <class T>
std::vector<T> function_values(KernelKind kind, const std::vector<T>& t) {
    const T x = kind == KernelKind::sigmoid ? T(1) : T(0);
    std::vector<T> values(t.size());
    kernel_block<T>({kind, 1.0, 0.0, 3}, {&x, 1, 1}, {t.data(), t.size(), 1}, values.data(), t.size(), 1);
    return values;
}

template <class T>
std::vector<T> arguments(double largest) {
    std::vector<T> t;
    for (int i = 0; i <= 20000; ++i) t.push_back(static_cast<T>(largest * i / 20000.0));
    for (double small = 1.0; small > 1e-30; small /= 3.0) t.push_back(static_cast<T>(small));
    return t;
}

template <class T>
void check_exp(double bound, double largest) {
    const std::vector<T> t = arguments<T>(largest);
    const long double denormal = std::numeric_limits<T>::denorm_min();
    on_every_level([&](const std::string& level) {
        const std::vector<T> values = function_values(KernelKind::laplacian, t);
        for (std::size_t i = 0; i < t.size(); ++i) {
            const long double exact = std::exp(-static_cast<long double>(t[i]));
            CHECK(std::fabs(values[i] - exact) <= bound * exact + 0.51L * denormal, level, t[i], values[i]);
        }
    });
}

template <class T>
void check_tanh(double bound) {
    const std::vector<T> t = arguments<T>(45.0);
    on_every_level([&](const std::string& level) {
        const std::vector<T> values = function_values(KernelKind::sigmoid, t);
        for (std::size_t i = 0; i < t.size(); ++i) {
            const long double exact = std::tanh(static_cast<long double>(t[i]));
            CHECK(std::fabs(values[i] - exact) <= bound * exact, level, t[i], values[i]);
        }
    });
}

template <class T>
void check_threads_and_symmetry(std::size_t d) {
    const std::size_t n = 203;
    const std::vector<T> X = random_values<T>(n * d, 3);
    const Rows<T> rows{X.data(), n, d};
    for (const KernelSpec& spec : kSpecs)
        on_every_level([&](const std::string& level) {
            std::vector<T> block(n * n), again(n * n), diagonal(n);
            kernel_block<T>(spec, rows, rows, block.data(), n, 1);
            kernel_diagonal<T>(spec, rows, diagonal.data());
            for (const unsigned n_threads : {1u, 2u, 3u}) {
                kernel_block<T>(spec, rows, rows, again.data(), n, n_threads);
                CHECK(again == block, level, n_threads);
                kernel_matrix<T>(spec, rows, again.data(), n, n_threads);
                CHECK(again == block, level, n_threads);
            }
            for (std::size_t i = 0; i < n; ++i) {
                CHECK(diagonal[i] == block[i * n + i], level, static_cast<int>(spec.kind), i);
                for (std::size_t j = 0; j < i; ++j) CHECK(block[i * n + j] == block[j * n + i], level, i, j);
            }
        });
}

}  // namespace

TEST(kernel_values_match_scalar_loop_at_tail_sizes_in_double) { compare_at_tail_sizes<double, double>(); }
TEST(kernel_values_match_scalar_loop_at_tail_sizes_in_float) { compare_at_tail_sizes<float, float>(); }
TEST(kernel_values_match_scalar_loop_at_tail_sizes_float_in_double) { compare_at_tail_sizes<float, double>(); }

TEST(exp_is_accurate_in_double) { check_exp<double>(2.3e-16, 760.0); }
TEST(exp_is_accurate_in_float) { check_exp<float>(1.2e-7, 110.0); }
TEST(tanh_is_accurate_in_double) { check_tanh<double>(6e-16); }
TEST(tanh_is_accurate_in_float) { check_tanh<float>(3.5e-7); }

TEST(exp_is_exactly_1_at_0_and_exactly_0_for_very_negative_arguments) {
    on_every_level([](const std::string& level) {
        const double infinity = std::numeric_limits<double>::infinity();
        CHECK((function_values<double>(KernelKind::laplacian, {0.0, 745.0, 746.0, 1e300, infinity}) ==
               std::vector<double>{1.0, std::numeric_limits<double>::denorm_min(), 0.0, 0.0, 0.0}),
              level);
        CHECK((function_values<float>(KernelKind::laplacian, {0.0f, 103.0f, 104.0f, 1e30f}) ==
               std::vector<float>{1.0f, std::numeric_limits<float>::denorm_min(), 0.0f, 0.0f}),
              level);
    });
}

TEST(exp_and_tanh_of_nan_are_nan) {
    on_every_level([](const std::string& level) {
        const double nan = std::numeric_limits<double>::quiet_NaN();
        for (const KernelKind kind : {KernelKind::laplacian, KernelKind::rbf, KernelKind::sigmoid})
            CHECK(std::isnan(function_values<double>(kind, {nan})[0]), level, static_cast<int>(kind));
    });
}

TEST(threads_and_symmetry_do_not_change_kernel_values_in_double) {
    // With d = 7, both triangles are computed. With d = 45, one triangle is copied.
    for (const std::size_t d : {7, 45}) check_threads_and_symmetry<double>(d);
}
TEST(threads_and_symmetry_do_not_change_kernel_values_in_float) {
    // With d = 7, both triangles are computed. With d = 45, one triangle is copied.
    for (const std::size_t d : {7, 45}) check_threads_and_symmetry<float>(d);
}

TEST(distances_are_exact_under_a_common_offset) {
    const std::size_t n = 20, d = 9;
    std::vector<double> X = random_values<double>(n * d, 4), shifted(X);
    for (std::size_t at = 0; at < X.size(); ++at) shifted[at] = X[at] + 1e6, X[at] = shifted[at] - 1e6;
    for (const KernelKind kind : {KernelKind::rbf, KernelKind::laplacian})
        on_every_level([&](const std::string& level) {
            std::vector<double> here(n * n), there(n * n);
            kernel_matrix<double>({kind, 0.3, 0.0, 3}, {X.data(), n, d}, here.data(), n, 1);
            kernel_matrix<double>({kind, 0.3, 0.0, 3}, {shifted.data(), n, d}, there.data(), n, 1);
            CHECK(here == there, level);  // equality is exact, because the differences are exact
        });
}

TEST(kernel_sums_match_weighted_kernel_rows) {
    const std::size_t n = 3001, n_z = 37, d = 6;  // large enough for two threads
    const auto X = random_values<float>(n * d, 5), Z = random_values<float>(n_z * d, 6);
    const auto weights = random_values<double>(n_z, 7);
    const PackedRows<float, double> packed(Rows<float>{Z.data(), n_z, d});
    const KernelSpec spec{KernelKind::rbf, 0.1, 0.0, 3};
    on_every_level([&](const std::string& level) {
        std::vector<double> values(n * n_z), sums(n), again(n);
        kernel_rows(spec, {X.data(), n, d}, packed, values.data(), n_z, 1);
        kernel_sums(spec, {X.data(), n, d}, packed, weights.data(), sums.data(), 1);
        kernel_sums(spec, {X.data(), n, d}, packed, weights.data(), again.data(), 2);
        CHECK(sums == again, level);
        for (std::size_t i = 0; i < n; ++i) {
            double expected = 0.0;
            for (std::size_t j = 0; j < n_z; ++j) expected += weights[j] * values[i * n_z + j];
            CHECK(std::fabs(sums[i] - expected) < 1e-13, level, i);
        }
    });
}

TEST(kernel_from_products_matches_kernel_block) {
    const std::size_t n = 13, d = 4;
    const std::vector<double> X = random_values<double>(n * d, 8);
    const Rows<double> rows{X.data(), n, d};
    on_every_level([&](const std::string& level) {
        std::vector<double> norms(n), values(n * n), expected(n * n);
        kernel_diagonal<double>({KernelKind::linear, 1.0, 0.0, 3}, rows, norms.data());
        for (const KernelSpec& spec : kSpecs) {
            if (spec.kind == KernelKind::laplacian) continue;
            kernel_matrix<double>({KernelKind::linear, 1.0, 0.0, 3}, rows, values.data(), n, 1);
            kernel_from_products<double>(spec, values.data(), n, n, n, norms.data(), norms.data(), 1);
            kernel_matrix<double>(spec, rows, expected.data(), n, 1);
            for (std::size_t at = 0; at < n * n; ++at) CHECK(is_near(values[at], expected[at]), level, at);
            for (std::size_t i = 0; i < n && spec.kind == KernelKind::rbf; ++i)
                CHECK(values[i * n + i] == 1.0, level, i);
        }
    });
}

TEST(packed_rows_match_a_list_after_random_changes) {
    const std::size_t d = 3;
    PackedRows<float, double> packed(d);
    std::vector<std::vector<float>> model;
    std::mt19937 bits(9);
    for (unsigned step = 0; step < 600; ++step) {
        const std::vector<float> row = random_values<float>(d, 100 + step);
        const unsigned action = bits() % 4;
        if (action < 2 || model.empty()) {
            packed.append(row.data());
            model.push_back(row);
        } else {
            const std::size_t i = bits() % model.size();
            if (action == 2) {
                packed.replace(i, row.data());
                model[i] = row;
            } else {
                packed.swap_remove(i);
                model[i] = model.back();
                model.pop_back();
            }
        }
    }
    CHECK(packed.size() == model.size(), packed.size(), model.size());
    for (std::size_t i = 0; i < model.size(); ++i) {
        std::vector<float> row(d);
        packed.copy_row(i, row.data());
        CHECK(row == model[i], i);
        CHECK(packed(i, d - 1) == model[i][d - 1], i);
    }
}
