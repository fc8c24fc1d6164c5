// Compares KOIL with a simple implementation without caches, batches, windows or threads.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "common/random.hpp"
#include "koil/koil.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

// Kernel matrix of all samples of a stream.
struct Matrix {
    std::vector<double> values;
    std::size_t n;

    Matrix(const KernelSpec& kernel, const std::vector<double>& X, std::size_t d)
        : values(X.size() / d * (X.size() / d)), n(X.size() / d) {
        kernel_matrix<double>(kernel, {X.data(), n, d}, values.data(), n, 1);
    }
    double operator()(std::size_t i, std::size_t j) const { return values[i * n + j]; }
};

// Simple KOIL: two buffers of weighted samples at fixed positions. Every score is computed from scratch.
struct SlowKoil {
    struct Vector {
        std::size_t sample;
        double weight;
    };
    const Matrix& K;
    KoilRule rule;
    KoilBudgets budgets;
    std::uint64_t seed;
    std::vector<Vector> sides[2] = {};
    std::size_t oldest[2] = {0, 0};
    std::uint64_t seen[2] = {0, 0};
    double loss = 0.0, log_weight = 0.0;

    double score(std::size_t t) const {
        double sum = 0.0;
        for (const auto& side : sides)
            for (const Vector& vector : side) sum += vector.weight * K(vector.sample, t);
        return sum;
    }

    void learn(std::size_t t, int y) {
        const int own = y > 0;
        ++seen[own];
        const double rate = rule.learning_rate / std::pow(static_cast<double>(seen[0] + seen[1]), rule.rate_decay);
        std::vector<double> losses;
        for (const Vector& vector : sides[1 - own]) losses.push_back(1.0 - y * (score(t) - score(vector.sample)));
        std::vector<std::size_t> violators;
        for (std::size_t i = 0; i < losses.size(); ++i)
            if (losses[i] > 0.0) violators.push_back(i);
        std::stable_sort(violators.begin(), violators.end(), [&](std::size_t a, std::size_t b) {
            return K(t, sides[1 - own][a].sample) > K(t, sides[1 - own][b].sample);
        });
        violators.resize(std::min(violators.size(), rule.n_neighbors));
        for (auto& side : sides)
            for (Vector& vector : side) vector.weight *= rule.decay ? 1.0 - rate : 1.0;
        double weight = 0.0;
        loss = 0.0;
        for (const std::size_t i : violators) {
            const double step = rate * rule.C * y * (rule.smooth ? 2.0 * losses[i] : 1.0);
            sides[1 - own][i].weight -= step;
            weight += step;
            loss += rule.smooth ? losses[i] * losses[i] : losses[i];
        }
        if (violators.empty() && (sides[0].empty() || sides[1].empty())) weight = rate * rule.C * y;
        if (weight != 0.0) put(own, {t, weight}, uniform_at(seed, t));
    }

    void put(int own, Vector vector, double uniform) {
        auto& side = sides[own];
        const std::size_t budget = budgets[static_cast<std::size_t>(own)];
        if (rule.policy == BufferPolicy::unbounded || side.size() < budget) return side.push_back(vector);
        std::size_t place = static_cast<std::size_t>(uniform * static_cast<double>(seen[own]));
        if (rule.policy == BufferPolicy::fifo || rule.policy == BufferPolicy::fifo_plus) {
            place = oldest[own];
            oldest[own] = (place + 1) % budget;
        }
        if (place < budget) std::swap(side[place], vector);
        if (rule.policy != BufferPolicy::fifo_plus && rule.policy != BufferPolicy::reservoir_plus) return;
        const auto heir = std::max_element(side.begin(), side.end(), [&](const Vector& a, const Vector& b) {
            return K(vector.sample, a.sample) < K(vector.sample, b.sample);
        });
        heir->weight += vector.weight;
    }
};

struct SignedStream {
    std::vector<double> X;
    std::vector<std::int8_t> signs;  // signs of all samples, n_targets rows
    std::size_t n, d;

    SignedStream(std::size_t n_samples, std::size_t n_features, std::size_t n_targets, unsigned seed)
        : X(random_values<double>(n_samples * n_features, seed)), n(n_samples), d(n_features) {
        for (std::size_t target = 0; target < n_targets; ++target)
            for (std::size_t i = 0; i < n; ++i) {
                const bool positive = uniform_at(seed, i, target) < 0.3;
                signs.push_back(positive ? 1 : -1);
                if (positive) X[i * d + target % d] += 1.0;
            }
        // Rounds a value to float precision.
        for (double& value : X) value = static_cast<double>(static_cast<float>(value));
    }
};

constexpr BufferPolicy kPolicies[] = {BufferPolicy::reservoir_plus, BufferPolicy::fifo_plus, BufferPolicy::reservoir,
                                      BufferPolicy::fifo, BufferPolicy::unbounded};

// Error tolerance after several hundred steps.
template <class T>
constexpr double kRounding = sizeof(T) == sizeof(double) ? 1e-9 : 2e-5;

// Learns a stream in batches of pseudo-random lengths.
template <class T>
void learn_all(KoilEnsemble<T>& ensemble, const SignedStream& stream, const KoilRule& rule, unsigned n_threads) {
    const std::vector<T> X(stream.X.begin(), stream.X.end());
    for (std::size_t begin = 0, batch = 1; begin < stream.n; begin += batch, batch = batch * 3 % 701) {
        batch = std::min(batch, stream.n - begin);
        std::vector<std::int8_t> signs;
        for (std::size_t target = 0; target < ensemble.n_targets(); ++target)
            for (std::size_t i = begin; i < begin + batch; ++i) signs.push_back(stream.signs[target * stream.n + i]);
        ensemble.learn({X.data() + begin * stream.d, batch, stream.d}, signs.data(), rule, n_threads);
    }
}

template <class T>
void compare_with_slow(const SignedStream& stream, const std::vector<KernelSpec>& kernels, std::size_t n_targets,
                       KoilBudgets budgets, const KoilRule& rule, unsigned n_threads, const std::string& what) {
    const std::uint64_t seed = 5;
    const KoilBudgets bounds = rule.policy == BufferPolicy::unbounded ? KoilBudgets{0, 0} : budgets;
    KoilEnsemble<T> ensemble(stream.d, kernels, bounds, seed);
    for (std::size_t target = 0; target < n_targets; ++target) ensemble.add_target();
    learn_all(ensemble, stream, rule, n_threads);

    std::vector<Matrix> matrices;
    for (const KernelSpec& kernel : kernels) matrices.emplace_back(kernel, stream.X, stream.d);
    std::vector<double> scores(ensemble.n_machines() * stream.n);
    const std::vector<T> X(stream.X.begin(), stream.X.end());
    ensemble.scores({X.data(), stream.n, stream.d}, scores.data(), n_threads);
    for (std::size_t target = 0; target < n_targets; ++target) {
        std::vector<SlowKoil> slow;
        for (const Matrix& K : matrices) slow.push_back({K, rule, budgets, seed});
        for (std::size_t t = 0; t < stream.n; ++t) {
            double largest = slow[0].log_weight;
            for (const SlowKoil& one : slow) largest = std::max(largest, one.log_weight);
            for (std::size_t l = 0; l < slow.size(); ++l) {
                if (slow.size() > 1 && !(std::log(uniform_at(seed, t, 1 + l)) < slow[l].log_weight - largest)) continue;
                slow[l].learn(t, stream.signs[target * stream.n + t]);
                slow[l].log_weight -= rule.weight_rate * slow[l].loss;
            }
        }
        double largest = 0.0, difference = 0.0;
        for (std::size_t l = 0; l < slow.size(); ++l)
            for (std::size_t t = 0; t < stream.n; ++t) {
                const double expected = slow[l].score(t);
                const double found = scores[(target * slow.size() + l) * stream.n + t];
                largest = std::max(largest, std::abs(expected));
                difference = std::max(difference, std::abs(expected - found));
            }
        CHECK(difference <= kRounding<T> * largest, what, target, difference, largest);
    }
    CHECK(ensemble.cache_error() <= kRounding<T>, what, ensemble.cache_error());
}

bool same_states(const std::vector<KoilMachineState>& a, const std::vector<KoilMachineState>& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t m = 0; m < a.size(); ++m) {
        if (a[m].stale_side != b[m].stale_side || a[m].scale != b[m].scale || a[m].log_weight != b[m].log_weight ||
            a[m].steps != b[m].steps)
            return false;
        for (int s = 0; s < 2; ++s) {
            const auto &x = a[m].sides[s], &y = b[m].sides[s];
            if (x.ids != y.ids || x.coef != y.coef || x.scores != y.scores || x.applied != y.applied ||
                x.oldest != y.oldest || x.seen != y.seen)
                return false;
        }
    }
    return true;
}

}  // namespace

TEST(koil_matches_the_simple_implementation_for_every_policy) {
    const SignedStream stream(700, 4, 1, 1);
    on_every_level([&](const std::string& level) {
        for (const BufferPolicy policy : kPolicies)
            for (const bool smooth : {false, true}) {
                const KoilRule rule{1.0, 0.05, 3, smooth, smooth, policy, 0.0, smooth ? 0.2 : 0.0};
                const std::string what = text(level, static_cast<int>(policy), smooth ? "smooth" : "hinge");
                compare_with_slow<double>(stream, {{.gamma = 0.4}}, 1, {13, 8}, rule, 1, what);
            }
    });
}

TEST(float32_koil_matches_float64_koil_up_to_rounding) {
    const SignedStream stream(500, 3, 1, 2);
    on_every_level([&](const std::string& level) {
        for (const BufferPolicy policy : kPolicies)
            compare_with_slow<float>(stream, {{.gamma = 0.4}}, 1, {20, 20},
                                     {1.0, 0.05, 5, false, true, policy, 0.0, 0.0}, 1, "float " + level);
    });
}

TEST(float32_scores_stay_accurate_with_shared_sums_and_refreshes) {
    const SignedStream stream(6000, 20, 2, 12);
    KoilEnsemble<float> ensemble(20, {{.gamma = 0.05}, {.gamma = 0.2}, {.kind = KernelKind::laplacian, .gamma = 0.1}},
                                 {33, 40}, 3);
    ensemble.add_target();
    ensemble.add_target();
    learn_all(ensemble, stream, {0.5, 0.05, 4, false, true, BufferPolicy::fifo_plus, 0.001, 0.0}, 2);
    CHECK(ensemble.cache_error() <= 1e-4, ensemble.cache_error());
    std::vector<float> vectors;
    for (const KoilMachineState& state : ensemble.states(vectors)) {
        CHECK(state.scale >= 1e-15 && state.steps < 1100, state.scale, state.steps);
        for (const auto& side : state.sides)
            for (const double weight : side.coef) CHECK(std::isfinite(weight));
    }
}

TEST(state_with_scale_too_small_for_float32_is_rescaled) {
    KoilMachineState state;
    state.scale = 1e-90;
    for (auto& side : state.sides) {
        side.ids = {static_cast<std::uint32_t>(&side - state.sides)};
        side.coef = side.applied = {0.25e90};
        side.scores = {0.5e90};
        side.seen = 1;
    }
    const float vectors[] = {0.0f, 1.0f};
    const KoilEnsemble<float> ensemble({vectors, 2, 1}, {{.gamma = 1.0}}, {4, 4}, 3, 2, {&state, 1});
    double scores[2];
    ensemble.scores({vectors, 2, 1}, scores, 1);
    for (const double score : scores) CHECK(std::abs(score - 0.25 * (1.0 + std::exp(-1.0))) < 1e-6, score);
}

TEST(targets_and_kernels_of_an_ensemble_match_separate_models) {
    const SignedStream stream(600, 20, 3, 3);
    const std::vector<KernelSpec> kernels = {
        {.gamma = 0.05},
        {.gamma = 0.2},
        {.kind = KernelKind::laplacian, .gamma = 0.1},
        {.kind = KernelKind::polynomial, .gamma = 0.05, .coef0 = 1.0, .degree = 2}};
    for (const double weight_rate : {0.0, 0.01})
        for (const unsigned n_threads : {1u, 3u}) {
            const KoilRule rule{0.5, 0.05, 4, false, false, BufferPolicy::fifo_plus, weight_rate, 0.0};
            compare_with_slow<double>(stream, kernels, 3, {16, 12}, rule, n_threads, text(weight_rate, n_threads));
        }
}

TEST(result_is_bitwise_independent_of_the_number_of_threads) {
    const SignedStream stream(900, 6, 4, 4);
    const KoilRule rule{0.5, 0.05, 4, false, false, BufferPolicy::reservoir_plus, 0.02, 0.0};
    std::vector<std::vector<KoilMachineState>> states;
    for (const unsigned n_threads : {1u, 2u, 5u}) {
        KoilEnsemble<double> ensemble(6, {{.gamma = 0.1}, {.gamma = 0.5}, {.gamma = 2.0}}, {24, 30}, 1);
        for (int target = 0; target < 4; ++target) ensemble.add_target();
        learn_all(ensemble, stream, rule, n_threads);
        std::vector<double> vectors;
        states.push_back(ensemble.states(vectors));
        CHECK(same_states(states.back(), states.front()), n_threads);
    }
}

template <class T>
void check_going_on() {
    const SignedStream stream(500, 5, 2, 6), more(400, 5, 2, 7);
    const KoilRule rule{1.0, 0.05, 4, true, true, BufferPolicy::fifo_plus, 0.01, 0.0};
    const std::vector<KernelSpec> kernels = {{.gamma = 0.1}, {.gamma = 0.6}};
    KoilEnsemble<T> ensemble(5, kernels, {12, 9}, 3);
    ensemble.add_target();
    ensemble.add_target();
    learn_all(ensemble, stream, rule, 1);
    std::vector<T> vectors, after, again_after;
    const auto states = ensemble.states(vectors);
    KoilEnsemble<T> again({vectors.data(), vectors.size() / 5, 5}, kernels, {12, 9}, 3, ensemble.n_seen(), states);
    learn_all(ensemble, more, rule, 1);
    learn_all(again, more, rule, 1);
    CHECK(same_states(ensemble.states(after), again.states(again_after)));
    CHECK(after == again_after);
}

TEST(ensemble_restored_from_states_continues_bitwise_equal) {
    check_going_on<double>();
    check_going_on<float>();
}

TEST(copied_target_equals_the_original) {
    const SignedStream stream(300, 4, 2, 8);
    const KoilRule rule{1.0, 0.05, 4, false, true, BufferPolicy::fifo, 0.0, 0.0};
    KoilEnsemble<double> ensemble(4, {{.gamma = 0.3}}, {10, 10}, 3);
    ensemble.add_target();
    ensemble.add_target();
    learn_all(ensemble, stream, rule, 1);
    ensemble.copy_target(1);
    std::vector<double> scores(3 * stream.n);
    ensemble.scores({stream.X.data(), stream.n, 4}, scores.data(), 1);
    CHECK(ensemble.n_targets() == 3);
    for (std::size_t t = 0; t < stream.n; ++t) CHECK(scores[stream.n + t] == scores[2 * stream.n + t], t);
}

TEST(concurrent_scores_calls_are_correct) {
    const SignedStream stream(300, 4, 2, 9);
    KoilEnsemble<double> ensemble(4, {{.gamma = 0.3}, {.gamma = 1.0}}, {10, 10}, 3);
    ensemble.add_target();
    ensemble.add_target();
    learn_all(ensemble, stream, {1.0, 0.05, 4, false, true, BufferPolicy::fifo, 0.01, 0.0}, 3);
    std::vector<std::vector<double>> answers(4, std::vector<double>(4 * stream.n));
    {
        std::vector<std::jthread> askers;
        for (auto& answer : answers)
            askers.emplace_back([&] {
                std::vector<double> vectors;
                ensemble.scores({stream.X.data(), stream.n, 4}, answer.data(), 2);
                ensemble.states(vectors);
            });
    }
    for (const auto& answer : answers) CHECK(answer == answers[0]);
}

TEST(ensemble_without_features_accepts_more_samples_than_its_budget) {
    KoilEnsemble<double> ensemble(0, {{.gamma = 0.3}}, {2, 2}, 3);
    ensemble.add_target();
    const std::int8_t signs[] = {1, -1, 1, -1, 1, -1, 1};
    ensemble.learn({nullptr, 7, 0}, signs, {1.0, 0.05, 4, false, true, BufferPolicy::fifo_plus, 0.0, 0.0}, 1);
    CHECK(ensemble.n_seen() == 7);
    CHECK(ensemble.cache_error() <= 1e-12);
}
