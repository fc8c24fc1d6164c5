// Schedule of KOIL with multiple kernels (algorithm 4): decides which kernels learn which samples of a window.
// The header is included only by koil_window.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "common/random.hpp"

namespace steelyard {

// Number of samples that models process independently before all models synchronize.
constexpr std::size_t kWindowRows = 256;

// Decides for every model and sample whether the model learns the sample.
// A model is one kernel of one target. Kernel l of a target learns sample t with probability w_l / max_j w_j.
// A kernel learns sample t if log(u) < log w_l - max_j log w_j, for a uniform random u and the weights w before t.
// Weights never grow, which gives two bounds of the largest weight before sample t.
// A lower bound is the largest weight of the models that have already processed sample t.
// An upper bound is the largest of the last known weights of all models.
// Usually one of the bounds decides whether a model learns the sample. Otherwise the model waits for other models.
// The model that is furthest behind never waits.
// The result equals that of processing all models sample by sample, for any order of models and number of threads.
class KoilSchedule {
  public:
    enum class Decision { learn, skip, wait };

    KoilSchedule(std::size_t n_machines, std::size_t n_kernels, std::uint64_t seed)
        : n_kernels_(n_kernels),
          seed_(seed),
          courses_(std::make_unique<Course[]>(n_machines)),
          leaders_(std::make_unique<Leader[]>(n_machines / n_kernels)) {}

    // Starts a window for a model; first_sample is the number of its first sample. Must be called for every model.
    void start(std::size_t machine, std::uint64_t first_sample, std::size_t n_rows, double log_weight) {
        Course& course = courses_[machine];
        course.reached.store(0, std::memory_order_relaxed);
        course.bound = std::numeric_limits<double>::infinity();
        course.log_weights[0] = log_weight;
        if (n_kernels_ == 1) return;
        const std::size_t kernel = machine % n_kernels_;
        for (std::size_t t = 0; t < n_rows; ++t) course.draws[t] = uniform_at(seed_, first_sample + t, 1 + kernel);
        if (kernel == 0)
            for (std::atomic<double>& largest : leader_of(machine).log_weights)
                largest.store(-std::numeric_limits<double>::infinity(), std::memory_order_relaxed);
        leader_of(machine).raise(0, log_weight);
    }

    // Returns the number of samples that the model has processed.
    std::size_t reached(std::size_t machine) const { return courses_[machine].reached.load(std::memory_order_relaxed); }

    double log_weight(std::size_t machine) const {
        const Course& course = courses_[machine];
        return course.log_weights[course.reached.load(std::memory_order_acquire)];
    }

    // Returns whether the model learns or skips its next sample, or must wait for other models.
    Decision decide(std::size_t machine) {
        if (n_kernels_ == 1) return Decision::learn;
        Course& course = courses_[machine];
        const std::size_t t = reached(machine);
        const double own = course.log_weights[t], draw = course.draws[t];
        if (is_below(draw, own - course.bound)) return Decision::learn;
        if (!is_below(draw, own - leader_of(machine).at(t))) return Decision::skip;
        const Bounds largest = bounds_at(machine, t);
        course.bound = largest.upper;
        if (is_below(draw, own - largest.upper)) return Decision::learn;
        return is_below(draw, own - largest.lower) ? Decision::wait : Decision::skip;
    }

    // Returns the probability that the model learns the next samples, given the weights known so far.
    double probability(std::size_t machine) const {
        if (n_kernels_ == 1) return 1.0;
        const std::size_t t = reached(machine);
        return std::exp(courses_[machine].log_weights[t] - leader_of(machine).at(t));
    }
    // Returns the random number that the model uses for sample t.
    double draw(std::size_t machine, std::size_t t) const { return courses_[machine].draws[t]; }

    // Records that the model has processed one more sample.
    void pass(std::size_t machine, double log_weight) {
        Course& course = courses_[machine];
        const std::uint32_t next = course.reached.load(std::memory_order_relaxed) + 1;
        course.log_weights[next] = log_weight;
        course.reached.store(next, std::memory_order_release);
        if (n_kernels_ > 1) leader_of(machine).raise(next, log_weight);
    }

  private:
    struct alignas(64) Course {
        std::atomic<std::uint32_t> reached{0};
        double bound;                         // upper bound of the largest log weight
        double log_weights[kWindowRows + 1];  // log weights of the kernel before each sample that it has reached
        double draws[kWindowRows] = {};
    };
    // Largest weight of a target before each sample, over all kernels that have processed the sample.
    // If two threads write at the same time, one value may be lost. Every written value is a valid lower bound.
    struct alignas(64) Leader {
        std::atomic<double> log_weights[kWindowRows + 1];

        double at(std::size_t t) const { return log_weights[t].load(std::memory_order_relaxed); }
        void raise(std::size_t t, double log_weight) {
            if (log_weight > at(t)) log_weights[t].store(log_weight, std::memory_order_relaxed);
        }
    };
    struct Bounds {
        double lower, upper;
    };

    // Returns whether log(draw) < bound. The inequality 1 - 1 / draw <= log(draw) <= draw - 1 is usually sufficient.
    static bool is_below(double draw, double bound) {
        if (draw - 1.0 < bound) return true;
        if (draw - 1.0 >= bound * draw) return false;
        return std::log(draw) < bound;
    }

    Leader& leader_of(std::size_t machine) { return leaders_[machine / n_kernels_]; }
    const Leader& leader_of(std::size_t machine) const { return leaders_[machine / n_kernels_]; }

    // Returns a lower and an upper bound of the largest kernel weight of a target before sample t.
    Bounds bounds_at(std::size_t machine, std::size_t t) const {
        const std::size_t first = machine / n_kernels_ * n_kernels_;
        const double own = courses_[machine].log_weights[t];
        Bounds largest{own, own};
        for (std::size_t other = first; other < first + n_kernels_; ++other) {
            const Course& course = courses_[other];
            const std::size_t reached = course.reached.load(std::memory_order_acquire);
            const double weight = course.log_weights[std::min(reached, t)];
            largest.upper = std::max(largest.upper, weight);
            if (reached >= t) largest.lower = std::max(largest.lower, weight);
        }
        return largest;
    }

    std::size_t n_kernels_;
    std::uint64_t seed_;
    std::unique_ptr<Course[]> courses_;
    std::unique_ptr<Leader[]> leaders_;  // one per target
};

}  // namespace steelyard
