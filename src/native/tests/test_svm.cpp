// Compares the incremental SVM with the optimality conditions and with a slow reference solver.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "common/random.hpp"
#include "svm/incremental_svc.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

constexpr double kTolerance = 1e-8;
constexpr std::size_t kBudget = std::size_t{64} << 20;

// Labelled rows whose addresses do not change.
struct Table {
    std::size_t d;
    std::vector<double> X, weights;
    std::vector<std::int32_t> codes;

    LabelledRows view() const { return {X.data(), codes, weights}; }
    std::size_t size() const { return codes.size(); }
    void push(const double* x, std::int32_t code, double weight) {
        X.insert(X.end(), x, x + d);
        codes.push_back(code);
        weights.push_back(weight);
    }
    void erase(std::size_t i) {
        const auto at = static_cast<std::ptrdiff_t>(i), width = static_cast<std::ptrdiff_t>(d);
        X.erase(X.begin() + at * width, X.begin() + (at + 1) * width);
        codes.erase(codes.begin() + at);
        weights.erase(weights.begin() + at);
    }
};

enum class Shape {
    clouds,
    lattice,
    repeated
};  // a lattice has many equal kernel values, and repeated rows give singular matrices

Table made_table(Shape shape, std::size_t n, std::size_t d, std::int32_t n_classes, unsigned seed) {
    Table table{d, {}, {}, {}};
    const auto noise = random_values<double>(n * d, seed);
    for (std::size_t i = 0; i < n; ++i) {
        const auto code = static_cast<std::int32_t>(uniform_at(seed, i) * static_cast<double>(n_classes));
        std::vector<double> x(noise.begin() + static_cast<std::ptrdiff_t>(i * d),
                              noise.begin() + static_cast<std::ptrdiff_t>((i + 1) * d));
        x[static_cast<std::size_t>(code) % d] += 1.5;
        if (shape == Shape::lattice)
            for (double& value : x) value = std::round(value);
        if (shape == Shape::repeated && i >= 8) std::copy_n(table.X.data() + i % 8 * d, d, x.begin());
        table.push(x.data(), code, i % 5 == 0 ? 2.0 : 1.0);
    }
    return table;
}

// One binary problem in dense form: kernel matrix, labels, bounds.
struct Dense {
    std::size_t n;
    std::vector<double> K, y, lower, upper;

    Dense(const IncrementalSvc& svc, const ProblemSpec& spec, const KernelSpec& kernel) : n(svc.rows().size()) {
        const std::size_t d = svc.rows().n_features();
        K.resize(n * n);
        if (n > 0) kernel_matrix<double>(kernel, {svc.rows().sample(0), n, d}, K.data(), n, 1);
        for (std::size_t i = 0; i < n; ++i) {
            const double bound = spec.class_bounds[static_cast<std::size_t>(svc.codes()[i])] * svc.weights()[i];
            y.push_back(svc.codes()[i] == spec.positive ? 1.0 : -1.0);
            lower.push_back(y[i] > 0.0 ? 0.0 : -bound);
            upper.push_back(y[i] > 0.0 ? bound : 0.0);
        }
    }

    double e(const std::vector<double>& z, std::size_t i) const {
        long double sum = -static_cast<long double>(y[i]);
        for (std::size_t j = 0; j < n; ++j)
            sum += static_cast<long double>(K[i * n + j]) * static_cast<long double>(z[j]);
        return static_cast<double>(sum);
    }

    double objective(const std::vector<double>& z) const {
        double sum = 0.0;
        for (std::size_t i = 0; i < n; ++i) sum += z[i] * (0.5 * (e(z, i) + y[i]) - y[i]);
        return sum;
    }

    // Returns the largest violation of the optimality conditions.
    double violation(const std::vector<double>& z, double bias) const {
        double worst = std::abs(std::accumulate(z.begin(), z.end(), 0.0));
        for (std::size_t i = 0; i < n; ++i) {
            const double g = e(z, i) + bias;
            worst = std::max({worst, lower[i] - z[i], z[i] - upper[i]});
            if (z[i] < upper[i]) worst = std::max(worst, -g);
            if (z[i] > lower[i]) worst = std::max(worst, g);
        }
        return worst;
    }

    // Reference solver: SMO with the maximal violating pair, without caches.
    std::vector<double> solved() const {
        std::vector<double> z(n), sums(n);
        for (std::size_t i = 0; i < n; ++i) sums[i] = -y[i];
        for (int step = 0; step < 400000; ++step) {
            std::size_t up = n, down = n;
            for (std::size_t i = 0; i < n; ++i) {
                if (z[i] < upper[i] && (up == n || sums[i] < sums[up])) up = i;
                if (z[i] > lower[i] && (down == n || sums[i] > sums[down])) down = i;
            }
            if (up == n || down == n || sums[down] - sums[up] < 1e-10) break;
            const double curvature = std::max(1e-12, K[up * n + up] + K[down * n + down] - 2.0 * K[up * n + down]);
            const double move =
                std::min({(sums[down] - sums[up]) / curvature, upper[up] - z[up], z[down] - lower[down]});
            z[up] += move;
            z[down] -= move;
            for (std::size_t i = 0; i < n; ++i) sums[i] += move * (K[up * n + i] - K[down * n + i]);
        }
        return z;
    }
};

// Checks all invariants of a problem after an update.
void check_problem(IncrementalSvc& svc, std::size_t k, const KernelSpec& kernel, bool against_slow,
                   const std::string& what) {
    const ProblemSpec& spec = svc.spec(k);
    const Dense dense(svc, spec, kernel);
    const SvmState& state = svc.problem(k).state();
    double scale = 1.0;
    for (const double z : state.z) scale += std::abs(z);
    CHECK(state.z.size() == dense.n, what);
    const double violation = dense.violation(state.z, state.bias);
    CHECK(violation <= kTolerance + 1e-12 * scale, what, std::to_string(violation / kTolerance), "tolerances");
    // The reported violation must be correct.
    CHECK(std::abs(svc.problem(k).violation() - violation) <= kTolerance + 1e-11 * scale, what);
    // Sums must be within their error bounds.
    for (std::size_t i = 0; i < dense.n; ++i) {
        const double off = std::abs(state.e[i] - dense.e(state.z, i));
        CHECK(off <= state.slack - state.exact_at[i] + 1e-11 * scale, what, i, off);
    }
    // The factor must match the margin set, whose members are between their bounds.
    const std::vector<double> packed = state.factor.packed();
    const auto L = [&](std::size_t i, std::size_t j) { return j > i ? 0.0 : packed[i * (i + 1) / 2 + j]; };
    for (std::size_t i = 0; i < state.margin.size(); ++i) {
        const std::size_t a = state.margin[i];
        CHECK(state.z[a] >= dense.lower[a] && state.z[a] <= dense.upper[a], what, a);
        for (std::size_t j = 0; j <= i; ++j) {
            double product = 0.0;
            for (std::size_t c = 0; c <= j; ++c) product += L(i, c) * L(j, c);
            const double expected = dense.K[a * dense.n + state.margin[j]] + state.constant;
            CHECK(std::abs(product - expected) <= 1e-7 * (1.0 + std::abs(expected)), what, i, j, product, expected);
        }
    }
    if (!against_slow) return;
    const std::vector<double> slow = dense.solved();
    const double best = dense.objective(slow), reached = dense.objective(state.z);
    CHECK(std::abs(best - reached) <= 1e-6 * (1.0 + std::abs(best)), what, best, reached);
    for (std::size_t i = 0; i < dense.n; ++i)  // f without the bias is unique even if the coefficients are not
        CHECK(std::abs(dense.e(slow, i) - dense.e(state.z, i)) <= 2e-4 * scale, what, i);
}

std::vector<ProblemSpec> specs_for(std::int32_t n_classes, double C) {
    std::vector<ProblemSpec> specs;
    const std::vector<double> bounds(static_cast<std::size_t>(n_classes), C);
    if (n_classes == 2) return {{1, bounds}};
    for (std::int32_t code = 0; code < n_classes; ++code) specs.push_back({code, bounds});
    return specs;
}

// Adds rows one by one and in batches, removes them in a different order, and changes bounds.
void run_history(Shape shape, std::int32_t n_classes, const KernelSpec& kernel, bool as_function, double C,
                 const std::string& what) {
    const std::size_t d = 3;
    const Table all = made_table(shape, 260, d, n_classes, 17);
    const KernelFunction function = [&kernel](const double* X, std::size_t n_x, const double* Z, std::size_t n_z,
                                              double* out) {
        kernel_block<double>(kernel, {X, n_x, 3}, {Z, n_z, 3}, out, n_z, 1);
    };
    IncrementalSvc svc(d, kernel, as_function ? function : KernelFunction{}, kBudget);
    Table present{d, {}, {}, {}};
    std::size_t next = 0;
    const auto step = [&](std::size_t n_add, std::size_t n_retire, double c, bool against_slow) {
        Table add{d, {}, {}, {}}, retire{d, {}, {}, {}};
        for (std::size_t k = 0; k < n_add && next < all.size(); ++k, ++next)
            add.push(all.X.data() + next * d, all.codes[next], all.weights[next]);
        for (std::size_t k = 0; k < n_retire && present.size() > 0; ++k) {
            const auto i = static_cast<std::size_t>(uniform_at(5, next, k) * static_cast<double>(present.size()));
            retire.push(present.X.data() + i * d, present.codes[i], present.weights[i]);
            present.erase(i);
        }
        for (std::size_t k = 0; k < add.size(); ++k) present.push(add.X.data() + k * d, add.codes[k], add.weights[k]);
        svc.update(add.view(), retire.view(), specs_for(n_classes, c), kTolerance);
        CHECK(svc.rows().size() == present.size(), what);
        for (std::size_t k = 0; k < svc.n_problems(); ++k)
            check_problem(svc, k, kernel, against_slow, text(what, next, k));
    };
    for (int single = 0; single < 12; ++single) step(1, 0, C, true);
    step(20, 3, C, true);
    for (int slide = 0; slide < 15; ++slide) step(1, 1, C, slide % 5 == 0);
    step(0, 0, 3.0 * C, true);
    step(120, 0, 3.0 * C, false);  // causes so many violators that SMO is used
    step(0, 0, 0.2 * C, false);
    for (int slide = 0; slide < 8; ++slide) step(4, 5, 0.2 * C, false);
    step(0, present.size() - 6, C, true);
    step(0, 6, C, true);
    step(5, 0, C, true);
}

// Returns the full state of a problem, for bitwise comparison.
std::vector<double> fingerprint(IncrementalSvc& svc) {
    std::vector<double> values;
    for (std::size_t k = 0; k < svc.n_problems(); ++k) {
        const SvmState& s = svc.problem(k).state();
        for (const auto* column : {&s.y, &s.z, &s.e, &s.lower, &s.upper, &s.exact_at})
            values.insert(values.end(), column->begin(), column->end());
        values.insert(values.end(), s.margin.begin(), s.margin.end());
        values.push_back(s.bias);
        values.push_back(s.slack);
    }
    for (const double weight : svc.weights()) values.push_back(weight);
    for (std::size_t i = 0; i < svc.rows().size(); ++i)
        values.insert(values.end(), svc.rows().sample(i), svc.rows().sample(i) + svc.rows().n_features());
    return values;
}

}  // namespace

TEST(every_history_ends_at_the_optimum) {
    on_every_level([](const std::string& level) {
        for (const Shape shape : {Shape::clouds, Shape::lattice, Shape::repeated})
            for (const double C : {0.3, 30.0})
                run_history(shape, 2, {.gamma = 0.4}, false, C, text(level, static_cast<int>(shape), C));
    });
}

TEST(other_kernels_and_kernel_functions_end_at_the_optimum) {
    const KernelSpec linear{.kind = KernelKind::linear}, laplacian{.kind = KernelKind::laplacian, .gamma = 0.5};
    const KernelSpec polynomial{.kind = KernelKind::polynomial, .gamma = 0.3, .coef0 = 1.0, .degree = 3};
    run_history(Shape::clouds, 2, linear, false, 0.5, "linear");
    run_history(Shape::clouds, 2, laplacian, false, 2.0, "laplacian");
    run_history(Shape::clouds, 2, polynomial, false, 0.5, "polynomial");
    run_history(Shape::clouds, 2, laplacian, true, 2.0, "function");
}

TEST(three_classes_are_three_optimal_problems) { run_history(Shape::clouds, 3, {.gamma = 0.4}, false, 1.0, "three"); }

TEST(adding_at_once_and_one_by_one_give_the_same_decision_function) {
    const KernelSpec kernel{.gamma = 0.4};
    const Table all = made_table(Shape::clouds, 300, 3, 2, 4);
    IncrementalSvc at_once(3, kernel, {}, kBudget), one_by_one(3, kernel, {}, kBudget);
    at_once.update(all.view(), {}, specs_for(2, 1.0), kTolerance);
    for (std::size_t i = 0; i < all.size(); ++i)
        one_by_one.update({all.X.data() + i * 3, {all.codes.data() + i, 1}, {all.weights.data() + i, 1}}, {},
                          specs_for(2, 1.0), kTolerance);
    check_problem(at_once, 0, kernel, false, "at once");
    check_problem(one_by_one, 0, kernel, false, "one by one");
    const auto &a = at_once.problem(0).state(), &b = one_by_one.problem(0).state();
    CHECK(std::abs(a.bias - b.bias) <= 1e-5, a.bias, b.bias);
    const Dense dense(at_once, at_once.spec(0), kernel);  // both learners have the rows in the same order
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(std::abs(dense.e(a.z, i) - dense.e(b.z, i)) <= 1e-5, i);
}

TEST(forgetting_unknown_rows_throws_and_changes_nothing) {
    const Table all = made_table(Shape::clouds, 60, 3, 2, 5);
    IncrementalSvc svc(3, {.gamma = 0.4}, {}, kBudget);
    svc.update(all.view(), {}, specs_for(2, 1.0), kTolerance);
    const auto before = fingerprint(svc);
    Table retire{3, {}, {}, {}};
    retire.push(all.X.data(), all.codes[0], all.weights[0]);
    retire.push(all.X.data(), 1 - all.codes[0], all.weights[0]);  // no row of the other class has these values
    bool refused = false;
    try {
        svc.update(made_table(Shape::lattice, 5, 3, 2, 6).view(), retire.view(), specs_for(2, 1.0), kTolerance);
    } catch (const UnknownRow& unknown) {
        refused = unknown.index == 1;
    }
    CHECK(refused);
    CHECK(fingerprint(svc) == before);
}

TEST(slide_returns_false_if_the_classes_would_change) {
    const KernelSpec kernel{.gamma = 0.4};
    Table all = made_table(Shape::clouds, 80, 3, 2, 12);
    std::fill(all.weights.begin(), all.weights.end(), 1.0);
    for (std::size_t i = 0; i < 40; ++i) all.codes[i] = i == 0;  // the first row is the only row of its class
    IncrementalSvc svc(3, kernel, {}, kBudget);
    svc.update({all.X.data(), {all.codes.data(), 40}, {all.weights.data(), 40}}, {}, specs_for(2, 1.0), kTolerance);
    const auto x = [&](std::size_t i) { return all.X.data() + i * 3; };
    const auto before = fingerprint(svc);
    CHECK(!svc.slide(x(40), 0, x(0), 1, kTolerance));   // class 1 would disappear
    CHECK(!svc.slide(x(40), 2, x(1), 0, kTolerance));   // class 2 would appear
    CHECK(!svc.slide(x(40), 1, x(40), 0, kTolerance));  // the row to forget is unknown
    CHECK(fingerprint(svc) == before);
    for (std::size_t i = 1; i < 30; ++i) {
        CHECK(svc.slide(x(40 + i), static_cast<std::int32_t>(i % 2), x(i), 0, kTolerance), i);
        check_problem(svc, 0, kernel, false, text("slide", i));
    }
    CHECK(svc.count(1) == 16 && svc.count(0) == 24, svc.count(0), svc.count(1));
    const auto support = svc.support();
    for (std::uint32_t i = 0; i < 40; ++i)
        CHECK((svc.problem(0).state().z[i] != 0.0) == std::binary_search(support.begin(), support.end(), i), i);
}

TEST(throwing_kernel_function_changes_nothing) {
    const KernelSpec kernel{.gamma = 0.4};
    const Table all = made_table(Shape::clouds, 40, 3, 2, 7), more = made_table(Shape::clouds, 6, 3, 2, 8);
    int calls_left = -1, n_calls = 0;
    const KernelFunction function = [&](const double* X, std::size_t n_x, const double* Z, std::size_t n_z,
                                        double* out) {
        ++n_calls;
        if (calls_left-- == 0) throw std::runtime_error("no more");
        kernel_block<double>(kernel, {X, n_x, 3}, {Z, n_z, 3}, out, n_z, 1);
    };
    IncrementalSvc svc(3, kernel, function, kBudget);
    svc.update(all.view(), {}, specs_for(2, 1.0), kTolerance);
    Table retire{3, {}, {}, {}};
    for (std::size_t i = 0; i < 6; ++i) retire.push(all.X.data() + i * 3, all.codes[i], all.weights[i]);
    for (int fails_at = 0;; ++fails_at) {
        const auto before = fingerprint(svc);
        calls_left = fails_at;
        try {
            svc.update(more.view(), retire.view(), specs_for(2, 2.0), kTolerance);
        } catch (const std::runtime_error&) {
            calls_left = -1;
            const auto after = fingerprint(svc);
            CHECK(after == before, fails_at);
            continue;
        }
        CHECK(fails_at > 3, fails_at);
        break;
    }
    calls_left = -1;
    check_problem(svc, 0, kernel, true, "after all");
}

TEST(restored_problem_continues_bit_identically) {
    const Table all = made_table(Shape::clouds, 80, 3, 2, 9), more = made_table(Shape::clouds, 10, 3, 2, 10);
    IncrementalSvc svc(3, {.gamma = 0.4}, {}, kBudget), again(3, {.gamma = 0.4}, {}, kBudget);
    svc.update(all.view(), {}, specs_for(2, 1.0), kTolerance);
    const auto kept = svc.rows().kept_samples(), order = svc.order();
    again.restore_rows(all.view(), {svc.rows().precision(), kept, order, svc.n_wanted()});
    again.restore_problem(svc.spec(0), svc.problem(0).state(), svc.problem(0).active());
    for (IncrementalSvc* each : {&svc, &again}) each->update(more.view(), {}, specs_for(2, 1.0), kTolerance);
    CHECK(fingerprint(svc) == fingerprint(again));
}

TEST(cache_size_does_not_change_the_solution) {
    const KernelSpec kernel{.gamma = 0.4};
    const Table all = made_table(Shape::clouds, 200, 3, 2, 11);
    IncrementalSvc svc(3, kernel, {}, 2000);
    svc.update(all.view(), {}, specs_for(2, 1.0), kTolerance);
    check_problem(svc, 0, kernel, false, "little memory");
}
