// Compares NORMA, the randomized budget perceptron, the Forgetron and the Projectron with their formulas.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "check.hpp"
#include "common/random.hpp"
#include "koil/expansion.hpp"

using namespace steelyard;
using namespace steelyard::tests;

namespace {

constexpr std::size_t kRows = 220, kFeatures = 3;

struct Stream {
    std::vector<double> X = random_values<double>(kRows * kFeatures, 1), K = std::vector<double>(kRows * kRows);
    std::vector<std::int8_t> y = std::vector<std::int8_t>(kRows);
    KernelSpec kernel{.gamma = 0.5};

    Stream() {
        for (std::size_t i = 0; i < kRows; ++i) {
            y[i] = uniform_at(2, i) < 0.4 ? 1 : -1;
            X[i * kFeatures] += 0.7 * y[i];
        }
        kernel_matrix<double>(kernel, {X.data(), kRows, kFeatures}, K.data(), kRows, 1);
    }
    Rows<double> rows(std::size_t begin = 0, std::size_t end = kRows) const {
        return {X.data() + begin * kFeatures, end - begin, kFeatures};
    }
    double k(std::size_t i, std::size_t j) const { return K[i * kRows + j]; }
    double weigh(const std::vector<double>& weights, std::size_t t) const {
        double sum = 0.0;
        for (std::size_t i = 0; i < kRows; ++i) sum += weights[i] * k(i, t);
        return sum;
    }
};

// Compares the decision function at every row of the stream with that of the reference weights.
void check_scores(const Stream& stream, const KernelExpansion<double>& learner, const std::vector<double>& weights,
                  double bias, double tolerance, const char* what) {
    std::vector<double> scores(kRows);
    for (const unsigned n_threads : {1u, 3u}) {
        learner.scores(stream.rows(), scores.data(), n_threads);
        for (std::size_t t = 0; t < kRows; ++t) {
            const double expected = stream.weigh(weights, t) + bias;
            CHECK(std::abs(scores[t] - expected) <= tolerance * (1.0 + std::abs(expected)), what, t, scores[t],
                  expected);
        }
    }
}

// Learns the stream in two parts; between them, the learner is restored from its state.
template <class Rule>
KernelExpansion<double> learned(const Stream& stream, const Rule& rule, bool interrupted) {
    KernelExpansion<double> learner(stream.kernel, kFeatures);
    const std::size_t half = interrupted ? kRows / 2 : kRows;
    learner.learn(stream.rows(0, half), stream.y.data(), rule);
    if (!interrupted) return learner;
    std::vector<double> vectors(learner.rows().size() * kFeatures);
    for (std::size_t i = 0; i < learner.rows().size(); ++i) learner.rows().copy_row(i, vectors.data() + i * kFeatures);
    KernelExpansion<double> again(stream.kernel, {vectors.data(), learner.rows().size(), kFeatures}, learner.coef(),
                                  learner.times(), learner.numbers());
    again.learn(stream.rows(half, kRows), stream.y.data() + half, rule);
    return again;
}

// Returns the weights c that minimize the distance of sum c_i k(x_i, .) to k(x_t, .).
// The linear system is solved by Gaussian elimination with pivoting.
std::vector<double> project(const Stream& stream, const std::vector<std::size_t>& kept, std::size_t t) {
    const std::size_t n = kept.size();
    std::vector<std::vector<long double>> A(n, std::vector<long double>(n + 1));
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j) A[i][j] = stream.k(kept[i], kept[j]);
        A[i][n] = stream.k(kept[i], t);
    }
    for (std::size_t c = 0; c < n; ++c) {
        std::size_t pivot = c;
        for (std::size_t i = c; i < n; ++i)
            if (std::abs(A[i][c]) > std::abs(A[pivot][c])) pivot = i;
        std::swap(A[c], A[pivot]);
        for (std::size_t i = 0; i < n; ++i) {
            if (i == c) continue;
            const long double factor = A[i][c] / A[c][c];
            for (std::size_t j = c; j <= n; ++j) A[i][j] -= factor * A[c][j];
        }
    }
    std::vector<double> solution(n);
    for (std::size_t i = 0; i < n; ++i) solution[i] = static_cast<double>(A[i][n] / A[i][i]);
    return solution;
}

}  // namespace

TEST(norma_matches_its_formulas) {
    const Stream stream;
    for (const std::uint64_t memory : {0, 30})
        for (const bool interrupted : {false, true}) {
            const NormaRule rule{0.1, 0.2, 0.3, memory};
            std::vector<double> weights(kRows);
            double bias = 0.0, margin = 0.0;
            for (std::size_t t = 0; t < kRows; ++t) {
                const bool error = stream.y[t] * (stream.weigh(weights, t) + bias) <= margin;
                for (double& weight : weights) weight *= 1.0 - 0.1 * 0.2;
                if (error) weights[t] = 0.1 * stream.y[t], bias += 0.1 * stream.y[t];
                margin += 0.1 * (0.3 - error);
                for (std::size_t i = 0; memory && i + memory <= t; ++i) weights[i] = 0.0;
            }
            const auto learner = learned(stream, rule, interrupted);
            check_scores(stream, learner, weights, bias, 1e-12, "norma");
            CHECK(std::abs(learner.numbers().margin - margin) <= 1e-12, memory);
        }
}

TEST(random_budget_perceptron_matches_its_formulas) {
    const Stream stream;
    const std::size_t budget = 9;
    std::vector<std::size_t> kept;
    for (std::size_t t = 0; t < kRows; ++t) {
        double score = 0.0;
        for (const std::size_t i : kept) score += stream.y[i] * stream.k(i, t);
        if (stream.y[t] * score > 0.0) continue;
        if (kept.size() >= budget) {
            kept[static_cast<std::size_t>(uniform_at(7, t) * static_cast<double>(kept.size()))] = kept.back();
            kept.pop_back();
        }
        kept.push_back(t);
    }
    std::vector<double> weights(kRows);
    for (const std::size_t i : kept) weights[i] += stream.y[i];
    for (const bool interrupted : {false, true})
        check_scores(stream, learned(stream, RandomBudgetRule{budget, 7}, interrupted), weights, 0.0, 1e-12, "budget");
}

TEST(forgetron_matches_its_formulas) {
    const Stream stream;
    const std::size_t budget = 12;
    std::vector<double> weights(kRows);
    std::vector<std::size_t> kept;
    double deviation = 0.0, mistakes = 0.0;
    for (std::size_t t = 0; t < kRows; ++t) {
        if (stream.y[t] * stream.weigh(weights, t) > 0.0) continue;
        mistakes += 1.0;
        weights[t] = stream.y[t];
        kept.push_back(t);
        if (kept.size() <= budget) continue;
        const std::size_t gone = kept.front();
        const double weight = std::abs(weights[gone]), mu = stream.y[gone] * stream.weigh(weights, gone);
        const auto cost = [&](double phi) {
            return phi * phi * weight * weight + 2.0 * weight * phi * (1.0 - phi * mu);
        };
        double low = 0.0, high = 1.0;  // interval of the bisection for the largest phi
        for (int step = 0; step < 200; ++step) {
            const double middle = 0.5 * (low + high);
            (deviation + cost(middle) <= 15.0 / 32.0 * mistakes ? low : high) = middle;
        }
        const double phi = deviation + cost(1.0) <= 15.0 / 32.0 * mistakes ? 1.0 : low;
        deviation += cost(phi);
        for (double& each : weights) each *= phi;
        weights[gone] = 0.0;
        kept.erase(kept.begin());
    }
    for (const bool interrupted : {false, true})
        check_scores(stream, learned(stream, ForgetronRule{budget}, interrupted), weights, 0.0, 1e-9, "forgetron");
}

TEST(projectron_matches_its_formulas) {
    const Stream stream;
    for (const double threshold : {0.2, 0.6})
        for (const bool margin : {false, true}) {
            std::vector<std::size_t> kept;
            std::vector<double> weights(kRows);
            for (std::size_t t = 0; t < kRows; ++t) {
                const double achieved = stream.y[t] * stream.weigh(weights, t);
                if (achieved > 0.0 && !(margin && achieved < 1.0)) continue;
                const std::vector<double> onto = project(stream, kept, t);
                double length = 0.0;  // squared length of the projection
                for (std::size_t i = 0; i < kept.size(); ++i) length += onto[i] * stream.k(kept[i], t);
                const double squared = std::max(0.0, stream.k(t, t) - length), distance = std::sqrt(squared);
                double weight = 1.0;
                if (achieved > 0.0) {
                    const double loss = 1.0 - achieved, gain = loss - distance / threshold;
                    if (gain <= 0.0 || length <= 0.0) continue;
                    weight = std::min({loss / length, 2.0 * gain / length, 1.0});
                } else if (kept.empty() || distance > threshold) {
                    kept.push_back(t);
                    weights[t] = stream.y[t];
                    continue;
                }
                for (std::size_t i = 0; i < kept.size(); ++i) weights[kept[i]] += weight * stream.y[t] * onto[i];
            }
            for (const bool interrupted : {false, true}) {
                const auto learner = learned(stream, ProjectronRule{threshold, margin}, interrupted);
                CHECK(learner.rows().size() == kept.size(), threshold, margin, learner.rows().size(), kept.size());
                check_scores(stream, learner, weights, 0.0, 1e-7, margin ? "projectron++" : "projectron");
            }
        }
}

TEST(float32_expansion_matches_float64) {
    const auto X = random_values<float>(kRows * kFeatures, 4);
    const std::vector<double> wide(X.begin(), X.end());
    const Stream stream;
    KernelExpansion<float> narrow_learner(stream.kernel, kFeatures);
    KernelExpansion<double> learner(stream.kernel, kFeatures);
    narrow_learner.learn({X.data(), kRows, kFeatures}, stream.y.data(), ForgetronRule{10});
    learner.learn({wide.data(), kRows, kFeatures}, stream.y.data(), ForgetronRule{10});
    CHECK(narrow_learner.times() == learner.times());
    CHECK(narrow_learner.coef() == learner.coef());
}
