#include "enclosing/enclosing.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>

#include "common/interrupt.hpp"
#include "common/numbers.hpp"
#include "simd/simd.hpp"
#include "svm/row_cache.hpp"

namespace steelyard {

namespace {

constexpr double kRounding = 64 * std::numeric_limits<double>::epsilon();
constexpr std::size_t kCoarsestRows = 400;  // maximum number of rows of a problem that is solved directly
constexpr std::size_t kCoarsening = 4;      // the coarser problem uses every fourth row
constexpr double kCoarseTolerance = 1e-3;   // tolerance of the coarser problem, whose solution is only a starting point
constexpr std::size_t kStepsPerShrink = 1000;
constexpr std::size_t kStepsPerPoll = 16;
constexpr int kMaxRefreshes = 20;

using Values = std::vector<double>;

double total(const Values& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

Values diagonal_of(const BallProblem& problem) {
    Values diagonal(problem.rows.n_rows);
    kernel_diagonal(problem.spec, problem.rows, diagonal.data());
    return diagonal;
}

// out[i] = sum over j of alpha[j] k(x_i, x_j). With the linear kernel, this is the product of x_i with the center.
Values kernel_products(const BallProblem& problem, const Values& alpha, unsigned n_threads) {
    const auto [data, n, d] = problem.rows;
    const bool linear = problem.spec.kind == KernelKind::linear;
    PackedRows<double> support(d, linear ? 1 : 0);
    Values weights, centre(linear ? d : 0, 0.0), products(n);
    for (std::size_t j = 0; j < n; ++j) {
        if (alpha[j] == 0.0) continue;
        if (linear) {
            for (std::size_t k = 0; k < d; ++k) centre[k] += alpha[j] * data[j * d + k];
        } else {
            support.append(data + j * d);
            weights.push_back(alpha[j]);
        }
    }
    if (linear) {
        support.append(centre.data());
        weights.assign(1, 1.0);
    }
    kernel_sums(problem.spec, problem.rows, support, weights.data(), products.data(), n_threads);
    return products;
}

// Returns the height of each row: its squared distance to the center, up to a constant that all rows share.
Values heights_of(const Values& diagonal, const Values& products) {
    Values heights(diagonal.size());
    for (std::size_t i = 0; i < heights.size(); ++i) heights[i] = diagonal[i] - 2.0 * products[i];
    return heights;
}

// Returns weights that sum to 1. In order of decreasing height, each row gets its upper bound until the sum is 1.
// Among rows of equal height, the first row comes first.
Values load_highest(const Values& heights, std::span<const double> bounds) {
    std::vector<std::uint32_t> order(heights.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return heights[a] > heights[b]; });
    Values alpha(heights.size(), 0.0);
    double rest = 1.0;
    for (const std::uint32_t i : order) {
        alpha[i] = std::min(rest, bounds[i]);
        rest -= alpha[i];
        if (rest <= 0.0) break;
    }
    return alpha;
}

// SMO: optimizes two weights at a time. Each step moves weight from a low row to a high row.
class Solver {
  public:
    Solver(const BallProblem& problem, const BallSettings& settings, Values alpha)
        : problem_(problem), settings_(settings), diagonal_(diagonal_of(problem)), alpha_(std::move(alpha)) {
        largest_ = *std::max_element(diagonal_.begin(), diagonal_.end(),
                                     [](double a, double b) { return std::fabs(a) < std::fabs(b); });
        largest_ = std::fabs(largest_);
    }

    Ball run() {
        for (int round = 0; round < kMaxRefreshes; ++round) {
            refresh();
            if (gap() <= allowed_gap() || steps_ >= settings_.max_steps) break;
            descend();
            for (std::size_t k = 0; k < active_.size(); ++k) alpha_[active_[k]] = local_.alpha[k];
        }
        refresh();
        return finish();
    }

  private:
    // Data of the active rows that one step reads and writes, stored contiguously.
    struct Local {
        Values alpha, heights, diagonal, bounds, closed;  // `closed` is infinity if alpha is at its bound, else 0
    };

    // Recomputes the heights from alpha. All rows become active, and accumulated rounding errors vanish.
    void refresh() {
        const std::size_t n = problem_.rows.n_rows;
        active_.resize(n);
        std::iota(active_.begin(), active_.end(), 0u);
        local_.alpha = alpha_;
        local_.diagonal = diagonal_;
        local_.bounds.assign(problem_.bounds.begin(), problem_.bounds.end());
        local_.heights = heights_of(diagonal_, kernel_products(problem_, alpha_, settings_.n_threads));
        local_.closed.resize(n);
        for (std::size_t i = 0; i < n; ++i) local_.closed[i] = closed(i);
        objective_ = 0.0;
        for (std::size_t i = 0; i < n; ++i) objective_ += 0.5 * alpha_[i] * (diagonal_[i] + local_.heights[i]);
        list_support();
        highest_ = move_heights(0.0, local_.heights.data(), local_.heights.data());
    }

    void descend() {
        RowCache cache(problem_.spec, problem_.rows, active_, settings_.cache_bytes);
        for (std::size_t next_shrink = kStepsPerShrink; steps_ < settings_.max_steps; ++steps_) {
            if (gap() <= allowed_gap()) return;
            if (steps_ % kStepsPerPoll == 0) poll_interrupt();
            if (--next_shrink == 0) {
                shrink(cache);
                next_shrink = kStepsPerShrink;
            }
            step(cache);
        }
    }

    void step(RowCache& cache) {
        const std::size_t i = highest_;
        const double* row_i = cache.row(i);
        const std::size_t j = best_partner(i, row_i);
        const double* row_j = cache.row(j);
        Local& l = local_;
        const double drop = l.heights[i] - l.heights[j];
        const double curvature = curvature_of(i, j, row_i);
        const double moved = std::min({0.5 * drop / curvature, l.bounds[i] - l.alpha[i], l.alpha[j]});
        objective_ += moved * (drop - moved * curvature);
        // Weights that reach a bound are set exactly to the bound, because later comparisons test for equality.
        const bool was_zero = l.alpha[i] == 0.0;
        l.alpha[i] = moved == l.bounds[i] - l.alpha[i] ? l.bounds[i] : l.alpha[i] + moved;
        l.alpha[j] = moved == l.alpha[j] ? 0.0 : l.alpha[j] - moved;
        l.closed[i] = closed(i);
        l.closed[j] = closed(j);
        if (was_zero) support_.push_back(static_cast<std::uint32_t>(i));
        if (l.alpha[j] == 0.0) {
            *std::find(support_.begin(), support_.end(), j) = support_.back();
            support_.pop_back();
        }
        highest_ = move_heights(2.0 * moved, row_i, row_j);
    }

    // Returns the row from which moving weight to row i gives the largest gain.
    std::size_t best_partner(std::size_t i, const double* row_i) const {
        double best = -1.0;
        std::size_t partner = support_.front();
        for (const std::uint32_t j : support_) {
            const double drop = local_.heights[i] - local_.heights[j];
            if (drop <= 0.0) continue;
            const double gain = drop * drop / curvature_of(i, j, row_i);
            if (gain > best) best = gain, partner = j;
        }
        return partner;
    }

    // Returns the squared distance between rows i and j.
    // The distance is bounded away from 0, so that equal rows exchange as much weight as possible.
    double curvature_of(std::size_t i, std::size_t j, const double* row_i) const {
        return std::max(local_.diagonal[i] + local_.diagonal[j] - 2.0 * row_i[j], kRounding * largest_ + 1e-300);
    }

    double closed(std::size_t k) const { return local_.alpha[k] >= local_.bounds[k] ? kInfinity : 0.0; }

    std::size_t move_heights(double factor, const double* row_i, const double* row_j) {
        return loops().ball.move(local_.heights.data(), row_i, row_j, factor, local_.closed.data(), active_.size());
    }

    void list_support() {
        support_.clear();
        for (std::size_t k = 0; k < local_.alpha.size(); ++k)
            if (local_.alpha[k] > 0.0) support_.push_back(static_cast<std::uint32_t>(k));
    }

    double lowest_support() const {
        double lowest = kInfinity;
        for (const std::uint32_t j : support_) lowest = std::min(lowest, local_.heights[j]);
        return lowest;
    }

    // Returns the violation of optimality: the height difference between the best rows to gain and to lose weight.
    double gap() const {
        if (local_.closed[highest_] != 0.0) return 0.0;  // every row is at its bound
        return std::max(0.0, local_.heights[highest_] - lowest_support());
    }

    double allowed_gap() const { return settings_.tolerance * objective_ + kRounding * largest_; }

    // Shrinking: if many rows at a bound are unlikely to change, drops them from the active rows.
    void shrink(RowCache& cache) {
        const double low = lowest_support(), high = local_.heights[highest_];
        std::vector<std::uint32_t> kept;
        for (std::size_t k = 0; k < active_.size(); ++k) {
            const bool settled = (local_.alpha[k] == 0.0 && local_.heights[k] < low) ||
                                 (local_.closed[k] != 0.0 && local_.heights[k] > high);
            if (!settled) kept.push_back(static_cast<std::uint32_t>(k));
        }
        if (4 * kept.size() > 3 * active_.size()) return;
        for (std::size_t k = 0; k < active_.size(); ++k) alpha_[active_[k]] = local_.alpha[k];
        for (Values* values : {&local_.alpha, &local_.heights, &local_.diagonal, &local_.bounds, &local_.closed}) {
            for (std::size_t k = 0; k < kept.size(); ++k) (*values)[k] = (*values)[kept[k]];
            values->resize(kept.size());
        }
        for (std::size_t k = 0; k < kept.size(); ++k) active_[k] = active_[kept[k]];
        active_.resize(kept.size());
        list_support();
        highest_ = move_heights(0.0, local_.heights.data(), local_.heights.data());
        cache.narrow(kept);
    }

    Ball finish() const {
        const std::size_t n = alpha_.size();
        double centre_norm = 0.0;  // alpha'K alpha, the difference between squared distances and heights
        for (std::size_t i = 0; i < n; ++i) centre_norm += 0.5 * alpha_[i] * (diagonal_[i] - local_.heights[i]);
        Ball ball{alpha_, Values(n), 0.0, 0.0, steps_};
        double sum = 0.0, count = 0.0;
        for (std::size_t i = 0; i < n; ++i) {
            ball.squared_distances[i] = std::max(0.0, local_.heights[i] + centre_norm);
            if (alpha_[i] > 0.0 && alpha_[i] < problem_.bounds[i]) sum += ball.squared_distances[i], count += 1.0;
        }
        const double low = lowest_support();
        const double high = local_.closed[highest_] != 0.0 ? low : local_.heights[highest_];
        ball.squared_radius = count > 0.0 ? sum / count : std::max(0.0, 0.5 * (low + high) + centre_norm);
        ball.gap = objective_ > 0.0 ? gap() / objective_ : 0.0;
        return ball;
    }

    const BallProblem& problem_;
    const BallSettings& settings_;
    Values diagonal_, alpha_;            // one entry per row, including inactive rows
    std::vector<std::uint32_t> active_;  // rows that solver steps consider
    Local local_;
    std::vector<std::uint32_t> support_;  // indices, among the active rows, of the rows with positive weight
    std::size_t highest_ = 0;             // highest active row whose weight may increase
    double objective_ = 0.0, largest_ = 0.0;
    std::size_t steps_ = 0;
};

Ball solve(const BallProblem& problem, const BallSettings& settings);

// Returns approximate weights from the solution for every fourth row.
Values starting_weights(const BallProblem& problem, const BallSettings& settings) {
    const auto [data, n, d] = problem.rows;
    Values alpha(n, 0.0);
    if (n <= kCoarsestRows) {
        // The initial center is the mean of all rows.
        std::fill(alpha.begin(), alpha.end(), 1.0 / static_cast<double>(n));
    } else {
        Values rows, bounds;
        for (std::size_t i = 0; i < n; i += kCoarsening) {
            rows.insert(rows.end(), data + i * d, data + (i + 1) * d);
            bounds.push_back(problem.bounds[i]);
        }
        const double scale = std::accumulate(problem.bounds.begin(), problem.bounds.end(), 0.0) / total(bounds);
        for (double& bound : bounds) bound *= scale;
        BallSettings coarse = settings;
        coarse.tolerance = std::max(settings.tolerance, kCoarseTolerance);
        const Ball ball = solve({problem.spec, {rows.data(), bounds.size(), d}, bounds}, coarse);
        bool fits = true;
        for (std::size_t k = 0; k < bounds.size(); ++k) {
            alpha[k * kCoarsening] = ball.alpha[k];
            fits = fits && ball.alpha[k] <= problem.bounds[k * kCoarsening];
        }
        if (fits) return alpha;
    }
    const Values heights = heights_of(diagonal_of(problem), kernel_products(problem, alpha, settings.n_threads));
    return load_highest(heights, problem.bounds);
}

Ball solve(const BallProblem& problem, const BallSettings& settings) {
    return Solver(problem, settings, starting_weights(problem, settings)).run();
}

}  // namespace

Ball enclosing_ball(const BallProblem& problem, const BallSettings& settings) { return solve(problem, settings); }

}  // namespace steelyard
