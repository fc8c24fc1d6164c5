#include <algorithm>
#include <cmath>
#include <thread>

#include "check.hpp"
#include "proximal/planes.hpp"
#include "proximal/scores.hpp"
#include "proximal/single_row_model.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

constexpr std::size_t kPlaneRows = 400;

struct Labelled {
    std::vector<double> X;
    std::vector<std::int32_t> slots;
};

// Returns random rows. The last class is rare.
Labelled rows_of(std::size_t n_rows, std::size_t d, std::size_t n_classes, unsigned seed) {
    Labelled rows{random_values<double>(n_rows * d, seed), std::vector<std::int32_t>(n_rows)};
    for (std::size_t i = 0; i < n_rows; ++i) {
        rows.slots[i] = static_cast<std::int32_t>(std::min(i % (3 * n_classes), n_classes * n_classes) % n_classes);
        for (std::size_t j = 0; j < d; ++j)
            rows.X[i * d + j] += 100.0 + 0.5 * rows.slots[i] * static_cast<double>(j % 3);
    }
    return rows;
}

ExactState state_of(const Labelled& rows, std::size_t d) {
    ExactState state;
    state.n_features = d;
    add_rows<double>(state, {{rows.X.data(), rows.slots.size(), d}, rows.slots, {}}, 1);
    return state;
}

std::vector<std::int32_t> slots_up_to(std::size_t n) {
    std::vector<std::int32_t> slots(n);
    for (std::size_t k = 0; k < n; ++k) slots[k] = static_cast<std::int32_t>(k);
    return slots;
}

// Solves a dense system by Gaussian elimination in long double.
std::vector<long double> eliminated(std::vector<long double> A, std::vector<long double> b) {
    const std::size_t n = b.size();
    for (std::size_t p = 0; p < n; ++p)
        for (std::size_t i = p + 1; i < n; ++i) {
            const long double factor = A[i * n + p] / A[p * n + p];
            for (std::size_t j = p; j < n; ++j) A[i * n + j] -= factor * A[p * n + j];
            b[i] -= factor * b[p];
        }
    for (std::size_t p = n; p-- > 0;) {
        for (std::size_t j = p + 1; j < n; ++j) b[p] -= A[p * n + j] * b[j];
        b[p] /= A[p * n + p];
    }
    return b;
}

// Reference implementation: computes the balanced plane of a class from standardized rows.
std::vector<long double> plane_of(const Labelled& rows, std::size_t d, std::int32_t positive, long double C) {
    const std::size_t n = rows.slots.size(), size = d + 1;
    std::vector<long double> mean(d, 0.0L), deviation(d, 0.0L), A(size * size, 0.0L), b(size, 0.0L);
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < d; ++j) mean[j] += rows.X[i * d + j] / static_cast<long double>(n);
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < d; ++j)
            deviation[j] += (rows.X[i * d + j] - mean[j]) * (rows.X[i * d + j] - mean[j]) / static_cast<long double>(n);
    for (long double& value : deviation) value = std::sqrt(value);
    const auto own = static_cast<long double>(std::count(rows.slots.begin(), rows.slots.end(), positive));
    const long double share = own / static_cast<long double>(n);
    std::vector<long double> e(size);
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < d; ++j) e[j] = (rows.X[i * d + j] - mean[j]) / deviation[j];
        e[d] = -1.0L;
        const bool mine = rows.slots[i] == positive;
        const long double weight = mine ? 1.0L - share : share;
        for (std::size_t a = 0; a < size; ++a) {
            b[a] += weight * (mine ? 1.0L : -1.0L) * e[a];
            for (std::size_t c = 0; c < size; ++c) A[a * size + c] += weight * e[a] * e[c];
        }
    }
    for (std::size_t a = 0; a < size; ++a) A[a * size + a] += 1.0L / C;
    std::vector<long double> u = eliminated(A, b);
    long double intercept = -u[d];
    for (std::size_t j = 0; j < d; ++j) {
        u[j] /= deviation[j];
        intercept -= u[j] * mean[j];
    }
    u[d] = intercept;
    return u;
}

struct Solved {
    std::vector<double> coef, intercept;
    double slope = 0.0;
    bool definite = false;

    Solved(const ExactView& view, const PlaneRule& rule)
        : coef(n_planes_of(view.n_classes()) * view.origin().size()), intercept(n_planes_of(view.n_classes())) {
        definite = solve_planes(view, rule, coef.data(), intercept.data(), &slope);
    }
};

}  // namespace

TEST(planes_equal_the_reference_alone_and_in_lanes_at_every_level) {
    for (const std::size_t d : {1u, 4u, 20u, 70u})
        for (const std::size_t n_classes : {2u, 3u, 4u, 8u, 13u}) {
            const Labelled rows = rows_of(kPlaneRows, d, n_classes, static_cast<unsigned>(d + n_classes));
            const ExactState state = state_of(rows, d);
            std::vector<std::vector<long double>> expected;
            for (std::size_t p = 0; p < n_planes_of(n_classes); ++p)
                expected.push_back(plane_of(rows, d, static_cast<std::int32_t>(n_classes > 2 ? p : 1), 2.0L));
            on_every_level([&](const std::string& level) {
                const Solved solved(ExactView(state, slots_up_to(n_classes), 1), {.C = 2.0});
                CHECK(solved.definite && solved.slope > 0.0, level, d, n_classes);
                for (std::size_t p = 0; p < expected.size(); ++p) {
                    for (std::size_t j = 0; j < d; ++j)
                        CHECK(std::abs(solved.coef[p * d + j] - static_cast<double>(expected[p][j])) < 1e-9, level, d,
                              n_classes, p, j);
                    CHECK(std::abs(solved.intercept[p] - static_cast<double>(expected[p][d])) < 1e-6, level, d,
                          n_classes, p);
                }
            });
        }
}

TEST(plane_does_not_depend_on_other_planes_nor_on_pending_rows) {
    const std::size_t d = 6, n_classes = 11;
    const Labelled rows = rows_of(3000, d, n_classes, 5);
    const ExactState state = state_of(rows, d);  // all rows are already included in the sums
    ExactState piecewise;                        // all rows are pending
    piecewise.n_features = d;
    for (std::size_t i = 0; i < rows.slots.size(); i += 300)
        add_rows<double>(piecewise, {{rows.X.data() + i * d, 300, d}, {rows.slots.data() + i, 300}, {}}, 1);
    on_every_level([&](const std::string& level) {
        const Solved whole(ExactView(state, slots_up_to(n_classes), 1), {});
        const Solved parts(ExactView(piecewise, slots_up_to(n_classes), 1), {});
        CHECK(whole.coef == parts.coef && whole.intercept == parts.intercept && whole.slope == parts.slope, level);
        std::vector<std::int32_t> turned = slots_up_to(n_classes);
        std::reverse(turned.begin(), turned.end());
        const Solved reversed(ExactView(state, turned, 1), {});
        for (std::size_t p = 0; p < n_classes; ++p)
            for (std::size_t j = 0; j < d; ++j)
                CHECK(std::abs(whole.coef[p * d + j] - reversed.coef[(n_classes - 1 - p) * d + j]) < 1e-13, level, p);
    });
}

TEST(cholesky_factor_reproduces_the_matrix_at_every_level) {
    for (std::size_t n : {1u, 2u, 3u, 7u, 8u, 9u, 31u, 32u, 33u, 40u, 67u, 130u, 385u, 420u}) {
        const std::size_t stride = n + 3;
        const std::vector<double> rows = random_values<double>(2 * n * n, 6);
        std::vector<double> matrix(n * stride, std::nan(""));  // entries above the diagonal must not be read
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t j = 0; j <= i; ++j) {
                matrix[i * stride + j] = i == j ? 0.5 : 0.0;
                for (std::size_t r = 0; r < 2 * n; ++r) matrix[i * stride + j] += rows[r * n + i] * rows[r * n + j];
            }
        on_every_level([&](const std::string& level) {
            std::vector<double> factor = matrix;
            CHECK(loops().factor.factor(factor.data(), n, stride), level, n);
            for (std::size_t i = 0; i < n; ++i)
                for (std::size_t j = 0; j <= i; ++j) {
                    double product = 0.0;
                    for (std::size_t k = 0; k <= j; ++k) product += factor[i * stride + k] * factor[j * stride + k];
                    CHECK(std::abs(product - matrix[i * stride + j]) < 1e-13 * static_cast<double>(4 * n), level, n, i,
                          j);
                }
            factor = matrix;
            factor[(n - 1) * stride + n - 1] = -1.0;
            CHECK(!loops().factor.factor(factor.data(), n, stride), level, n);
        });
    }
}

TEST(inverse_times_matrix_is_the_identity_at_every_level) {
    for (const std::size_t n : {1u, 2u, 4u, 7u, 8u, 9u, 31u, 40u, 101u}) {
        const std::size_t stride = (n + 7) / 8 * 8;
        const std::vector<double> rows = random_values<double>(2 * n * n, 7);
        std::vector<double> matrix(n * n);
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t j = 0; j < n; ++j) {
                matrix[i * n + j] = i == j ? 0.5 : 0.0;
                for (std::size_t r = 0; r < 2 * n; ++r) matrix[i * n + j] += rows[r * n + i] * rows[r * n + j];
            }
        on_every_level([&](const std::string& level) {
            AlignedVector<double> factor(n * stride), work(n * stride), inverse(n * stride);
            for (std::size_t i = 0; i < n; ++i) std::copy_n(&matrix[i * n], i + 1, &factor[i * stride]);
            CHECK(loops().factor.factor(factor.data(), n, stride), level, n);
            loops().factor.invert(factor.data(), n, stride, work.data(), inverse.data());
            for (std::size_t i = 0; i < n; ++i)
                for (std::size_t j = 0; j < n; ++j) {
                    double product = 0.0;
                    for (std::size_t k = 0; k < n; ++k)
                        product += inverse[std::max(i, k) * stride + std::min(i, k)] * matrix[k * n + j];
                    CHECK(std::abs(product - (i == j ? 1.0 : 0.0)) < 1e-10, level, n, i, j);
                }
        });
    }
}

TEST(sums_formed_batch_by_batch_equal_sums_formed_at_once) {
    const std::size_t d = 9;
    const Labelled rows = rows_of(2000, d, 2, 51);
    const ExactState whole = state_of(rows, d);
    for (const std::size_t step : {1u, 5u, 40u, 300u}) {
        ExactSums sums(
            state_of({{rows.X.begin(), rows.X.begin() + 400 * d}, {rows.slots.begin(), rows.slots.begin() + 400}}, d));
        for (std::size_t i = 400; i < 2000; i += step) {
            const std::size_t n = std::min(step, 2000 - i);
            const ExactSums kept(sums.snapshot());  // copy that must not change
            const Big before = kept.read([](const ExactState& state) { return count_of(state, 0); });
            sums.update([&](ExactState& state) {
                add_rows<double>(state, {{rows.X.data() + i * d, n, d}, {rows.slots.data() + i, n}, {}}, 1);
            });
            if (i % 3 == 0) sums.view(slots_up_to(2), 1);
            CHECK(kept.read([](const ExactState& state) { return count_of(state, 0); }) == before, step, i);
        }
        for (std::size_t k = 0; k < 2; ++k)
            CHECK(sums.view(slots_up_to(2), 1).canonical(k) == ExactView(whole, slots_up_to(2), 1).canonical(k), step,
                  k);
    }
}

TEST(indefinite_matrix_returns_false) {
    const std::size_t d = 2, n_classes = 5;
    Labelled rows = rows_of(kPlaneRows, d, n_classes, 3);
    for (std::size_t i = 0; i < kPlaneRows; ++i) rows.X[i * d + 1] = rows.X[i * d] *= 0x1p40;
    on_every_level([&](const std::string& level) {
        const Solved solved(ExactView(state_of(rows, d), slots_up_to(n_classes), 1),
                            {.C = 1e300, .standardize = false});
        CHECK(!solved.definite, level);
    });
}

TEST(pivoted_cholesky_factor_reproduces_the_class_matrix) {
    const std::size_t d = 30, size = d + 1;
    const Labelled rows = rows_of(kPlaneRows, d, 2, 8);
    ExactState few = state_of(rows, d);
    std::vector<double> own(rows.X.begin(), rows.X.begin() + 6 * d);  // six rows of an additional class
    for (std::size_t i = 0; i < 6; ++i) own[i * d + 3] *= 1e6;        // gives one feature another scale
    const std::vector<std::int32_t> third(6, 2);
    add_rows<double>(few, {{own.data(), 6, d}, third, {}}, 1);
    ExactState summed = few;
    fold_all(summed, 1);
    const ExactView rows_kept(few, slots_up_to(3), 1), sums_kept(summed, slots_up_to(3), 1);
    std::vector<double> scale(size, 1.0), matrix(size * size);
    for (std::size_t j = 0; j < d; ++j) scale[j] = std::sqrt(rows_kept.variance()[j]);
    const std::vector<double> factor = rows_kept.factor(2, scale);
    CHECK(factor == sums_kept.factor(2, scale), "class stored as rows and as sums");
    CHECK(factor.size() / size <= 7 && factor.size() / size >= 6, factor.size() / size);
    rows_kept.matrix(2, matrix.data());
    for (std::size_t a = 0; a < size; ++a)
        for (std::size_t b = 0; b <= a; ++b) {
            double product = 0.0;
            for (std::size_t r = 0; r < factor.size() / size; ++r)
                product += factor[r * size + a] * factor[r * size + b];
            CHECK(std::abs(product - matrix[a * size + b]) < 1e-12 * scale[a] * scale[b] * 36.0, a, b);
        }
}

TEST(single_row_model_equals_the_general_path) {
    const std::size_t d = 5;
    for (const std::size_t n_classes : {1u, 2u, 3u, 6u, 12u}) {
        const PlaneRule rule{.gmean = n_classes % 2 == 0};
        const Labelled rows = rows_of(kPlaneRows, d, n_classes, 21), stream = rows_of(200, d, n_classes, 22);
        ExactSums sums(state_of(rows, d)), others(state_of(rows, d));
        SingleRowModel answers(sums, sums.version(), slots_up_to(n_classes), rule);
        for (std::size_t i = 0; i < 200; ++i) {
            const std::span<const double> row(stream.X.data() + i * d, d);
            const Solved solved(others.view(slots_up_to(n_classes), 1), rule);
            std::vector<std::uint64_t> places(std::max<std::size_t>(n_classes, 2));
            for (std::size_t k = 0; k < places.size(); ++k) places[k] = std::min(k, n_classes - 1);
            std::uint64_t expected;
            linear_labels<double>({row.data(), 1, d}, {solved.coef, solved.intercept}, places, &expected, 1);
            const auto winner = answers.winner(row);
            CHECK(winner && *winner == expected, n_classes, i);
            CHECK(answers.learn(row, stream.slots[i]), n_classes, i);
            others.update([&](ExactState& state) {
                add_rows<double>(state, {{row.data(), 1, d}, {&stream.slots[i], 1}, {}}, 1);
            });
        }
        const Solved one(sums.view(slots_up_to(n_classes), 1), rule), two(others.view(slots_up_to(n_classes), 1), rule);
        CHECK(one.coef == two.coef && one.intercept == two.intercept, n_classes);
    }
}

TEST(single_row_model_declines_unusual_input_without_changes) {
    const std::size_t d = 5;
    const Labelled rows = rows_of(kPlaneRows, d, 2, 31);
    ExactSums sums(state_of(rows, d));
    SingleRowModel answers(sums, sums.version(), slots_up_to(2), {});
    const std::span<const double> row(rows.X.data(), d);
    std::vector<double> bad(row.begin(), row.end());
    bad[2] = std::nan("");
    const std::uint64_t version = sums.version();
    CHECK(!answers.learn(bad, 0));
    CHECK(!answers.learn(row, 7));
    CHECK(sums.version() == version);
    CHECK(answers.winner(row).has_value());
    const std::int32_t slot = 1;
    sums.update([&](ExactState& state) { add_rows<double>(state, {{row.data(), 1, d}, {&slot, 1}, {}}, 1); });
    CHECK(!answers.winner(row));  // another object has changed the sums
    CHECK(!answers.learn(row, 0));
}

TEST(threads_may_predict_while_one_learns) {
    const std::size_t d = 5;
    const Labelled rows = rows_of(kPlaneRows, d, 3, 41), stream = rows_of(2000, d, 3, 42);
    ExactSums sums(state_of(rows, d));
    SingleRowModel answers(sums, sums.version(), slots_up_to(3), {});
    std::atomic<bool> stop{false};
    std::atomic<std::size_t> answered{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t)
        threads.emplace_back([&] {
            while (!stop.load())
                if (answers.winner({rows.X.data(), d})) ++answered;
        });
    for (std::size_t i = 0; i < 2000 || answered.load() == 0; ++i)
        CHECK(answers.learn({stream.X.data() + i % 2000 * d, d}, stream.slots[i % 2000]), i);
    stop.store(true);
    for (std::thread& thread : threads) thread.join();
    CHECK(sums.version() >= 2000);
}
