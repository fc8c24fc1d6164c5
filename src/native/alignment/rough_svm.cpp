#include "alignment/rough_svm.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "common/interrupt.hpp"
#include "common/threads.hpp"
#include "simd/simd.hpp"

namespace steelyard {

namespace {

constexpr double kClosed = std::numeric_limits<double>::infinity();
// Smallest curvature assumed in a step, relative to the diagonal of the kernel matrix.
constexpr double kMinCurvature = 1e-7;
constexpr std::size_t kMaxStepsPerSample = 1000;  // limits the number of steps on degenerate kernels

// Kernel values of pairs of samples in the working set, computed on demand.
class WorkingRows {
  public:
    WorkingRows(const RoughSamples& samples, const double* factor, std::size_t capacity)
        : samples_(samples), all_factors_(factor), capacity_(capacity), values_(new float[capacity * capacity]) {
        samples_of_.reserve(capacity);
        factors_.reserve(capacity);
        n_computed_.reserve(capacity);
    }

    std::size_t size() const { return samples_of_.size(); }
    std::size_t capacity() const { return capacity_; }
    std::size_t sample(std::size_t i) const { return static_cast<std::size_t>(samples_of_[i]); }
    double diagonal(std::size_t i) const {
        return factors_[i] * factors_[i] * samples_.K[sample(i) * samples_.n + sample(i)];
    }

    void add(std::size_t sample) {
        samples_of_.push_back(static_cast<std::int32_t>(sample));
        factors_.push_back(all_factors_[sample]);
        n_computed_.push_back(0);
    }

    const float* operator()(std::size_t i) {
        float* row = values_.get() + i * capacity_;
        const std::size_t computed = n_computed_[i];
        if (computed < size()) {
            loops().pair.pick(samples_.K + sample(i) * samples_.n, samples_of_.data() + computed, factors_[i],
                              factors_.data() + computed, row + computed, size() - computed);
            n_computed_[i] = size();
        }
        return row;
    }

  private:
    const RoughSamples& samples_;
    const double* all_factors_;
    const std::size_t capacity_;
    // Uninitialized, so that the operating system allocates no memory for unused pages.
    std::unique_ptr<float[]> values_;
    std::vector<std::int32_t> samples_of_;
    std::vector<double> factors_;
    std::vector<std::size_t> n_computed_;
};

class PairSolver {
  public:
    PairSolver(const RoughSamples& samples, RoughMachine& machine)
        : samples_(samples), machine_(machine), row_(samples, machine.factor, count_used(samples, machine)) {
        diagonal_.reserve(row_.capacity());
        for (auto* values : {&z_, &lower_, &upper_, &grown_, &fallen_, &e_}) values->reserve(row_.capacity());
        in_working_set_.resize(samples.n);
    }

    void run(RoughAccuracy accuracy, SharedPoll& poll) noexcept {
        start();
        do {
            take_steps(accuracy.tolerance, poll);
            machine_.intercept = intercept();
            score_all();
        } while (poll.goes_on() && extend_working_set(accuracy));
    }

  private:
    // Returns the number of samples with a positive bound.
    static std::size_t count_used(const RoughSamples& samples, const RoughMachine& machine) {
        return static_cast<std::size_t>(
            std::count_if(machine.bounds, machine.bounds + samples.n, [](double bound) { return bound > 0.0; }));
    }

    void start() {
        for (std::size_t sample = 0; sample < samples_.n; ++sample)
            if (machine_.working[sample] && machine_.bounds[sample] > 0.0) add(sample, -samples_.signs[sample]);
    }

    void add(std::size_t sample, double e) {
        const bool positive = samples_.signs[sample] > 0.0;
        in_working_set_[sample] = 1;
        row_.add(sample);
        lower_.push_back(positive ? 0.0 : -machine_.bounds[sample]);
        upper_.push_back(positive ? machine_.bounds[sample] : 0.0);
        z_.push_back(0.0);
        diagonal_.push_back(static_cast<float>(row_.diagonal(row_.size() - 1)));
        e_.push_back(e);
        grown_.push_back(kClosed);
        fallen_.push_back(kClosed);
        update_limits(row_.size() - 1);
    }

    void update_limits(std::size_t i) {
        grown_[i] = z_[i] < upper_[i] ? 0.0 : kClosed;
        fallen_[i] = z_[i] > lower_[i] ? 0.0 : kClosed;
    }

    void take_steps(double tolerance, SharedPoll& poll) {
        const std::size_t n = row_.size();
        const PairSamples s{diagonal_.data(), grown_.data(), fallen_.data(), e_.data(), n};
        const PairLoops& pair = loops().pair;
        std::size_t up = n > 0 ? pair.step(s, 0.0, row_(0), row_(0)) : n;
        for (std::size_t steps = kMaxStepsPerSample * n; up < n && steps > 0 && poll.goes_on(); --steps) {
            const float* up_row = row_(up);
            const auto [down, difference] = pair.partner(s, up, up_row);
            if (down == n || difference <= tolerance) return;
            const double move = move_pair(up, down, static_cast<double>(up_row[down]));
            up = pair.step(s, move, up_row, row_(down));
        }
    }

    // Changes a pair of multipliers by the optimal step within their bounds.
    double move_pair(std::size_t up, std::size_t down, double between) {
        const double own = row_.diagonal(up);
        const double curvature = std::max(own + row_.diagonal(down) - 2.0 * between, kMinCurvature * own);
        const double up_room = upper_[up] - z_[up], down_room = z_[down] - lower_[down];
        const double room = std::min(up_room, down_room);
        const double move = curvature > 0.0 ? std::min((e_[down] - e_[up]) / curvature, room) : room;
        z_[up] = move == up_room ? upper_[up] : z_[up] + move;
        z_[down] = move == down_room ? lower_[down] : z_[down] - move;
        update_limits(up);
        update_limits(down);
        return move;
    }

    // Returns the intercept: the mean over all samples whose multipliers are strictly between their bounds.
    // If no multiplier is strictly between its bounds, returns the middle of the feasible interval.
    double intercept() const {
        double sum = 0.0, low = -kClosed, high = kClosed;
        std::size_t n_between = 0;
        for (std::size_t i = 0; i < row_.size(); ++i) {
            const bool grows = grown_[i] == 0.0, falls = fallen_[i] == 0.0;
            if (grows && falls) sum -= e_[i], ++n_between;
            if (grows) low = std::max(low, -e_[i]);
            if (falls) high = std::min(high, -e_[i]);
        }
        if (n_between > 0) return sum / static_cast<double>(n_between);
        return low > -kClosed && high < kClosed ? (low + high) / 2.0 : 0.0;
    }

    // Computes multipliers and decision values of all samples in double precision.
    void score_all() {
        const std::size_t n = samples_.n;
        const SolverLoops& solver = loops().solver;
        std::fill_n(machine_.z, n, 0.0);
        std::fill_n(machine_.scores, n, 0.0);
        const double* rows[4];
        double weights[4];
        std::size_t count = 0;
        for (std::size_t i = 0; i < row_.size(); ++i) {
            if (z_[i] == 0.0) continue;
            const std::size_t sample = row_.sample(i);
            machine_.z[sample] = z_[i];
            rows[count] = samples_.K + sample * n;
            weights[count++] = z_[i] * machine_.factor[sample];
            if (count == 4) solver.axpy4(weights, rows, machine_.scores, n), count = 0;
        }
        while (count-- > 0) solver.axpy(weights[count], rows[count], machine_.scores, n);
        for (std::size_t x = 0; x < n; ++x)
            machine_.scores[x] = machine_.factor[x] * machine_.scores[x] + machine_.intercept;
    }

    // Adds samples near the margin to the working set. Returns whether any of them violated its margin.
    bool extend_working_set(RoughAccuracy accuracy) {
        const auto margin = [&](std::size_t x) {
            return in_working_set_[x] || machine_.bounds[x] <= 0.0 ? kClosed : samples_.signs[x] * machine_.scores[x];
        };
        double smallest = kClosed;
        for (std::size_t x = 0; x < samples_.n; ++x) smallest = std::min(smallest, margin(x));
        if (smallest >= 1.0 - accuracy.slack) return false;
        for (std::size_t x = 0; x < samples_.n; ++x)
            if (margin(x) < 1.0 + accuracy.tolerance)
                add(x, machine_.scores[x] - machine_.intercept - samples_.signs[x]);
        return true;
    }

    const RoughSamples& samples_;
    RoughMachine& machine_;
    WorkingRows row_;
    std::vector<double> z_, lower_, upper_, grown_, fallen_, e_;
    std::vector<float> diagonal_;
    std::vector<std::uint8_t> in_working_set_;
};

}  // namespace

void solve_roughly(const RoughSamples& samples, RoughMachine* machines, std::size_t n_machines, RoughAccuracy accuracy,
                   unsigned n_threads) {
    // All memory is allocated here, because a worker thread must not throw.
    std::vector<std::unique_ptr<PairSolver>> solvers;
    for (std::size_t m = 0; m < n_machines; ++m) solvers.push_back(std::make_unique<PairSolver>(samples, machines[m]));
    SharedPoll poll;
    parallel_for(n_machines, n_threads, [&](std::size_t m) {
        solvers[m]->run(accuracy, poll);
        solvers[m].reset();
    });
    poll.rethrow();
}

}  // namespace steelyard
