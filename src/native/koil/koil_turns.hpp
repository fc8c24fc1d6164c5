// Which kernels learn which samples of a window. Part of koil.cpp.
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

// Samples that every machine goes through at its own pace before all of them meet.
constexpr std::size_t kWindowRows = 256;

// Kernel l of a target learns sample t with probability w_l / max_j w_j, weights being those before the sample:
//     log(u) < log w_l - max_j log w_j
// Weights never grow. So the largest is at least that of the machines which have come as far as t, and at most what
// is known of all of them, and mostly one of these bounds decides. Where they do not, the machine waits for others
// to catch up; the last of them need not wait. Nothing is guessed: the turns are those of machines that go sample by
// sample, whatever the order, and on however many threads, machines are moved on.
class KoilTurns {
  public:
    enum class Turn { learn, skip, wait };

    KoilTurns(std::size_t n_machines, std::size_t n_kernels, std::uint64_t seed)
        : n_kernels_(n_kernels),
          seed_(seed),
          courses_(std::make_unique<Course[]>(n_machines)),
          leaders_(std::make_unique<Leader[]>(n_machines / n_kernels)) {}

    // A window that begins with the sample of this number; to be called for every machine.
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
        leader_of(machine).meet(0, log_weight);
    }

    // How many samples the machine is through with.
    std::size_t reached(std::size_t machine) const { return courses_[machine].reached.load(std::memory_order_relaxed); }

    double log_weight(std::size_t machine) const {
        const Course& course = courses_[machine];
        return course.log_weights[course.reached.load(std::memory_order_acquire)];
    }

    // The machine's turn at the sample it has reached.
    Turn turn(std::size_t machine) {
        if (n_kernels_ == 1) return Turn::learn;
        Course& course = courses_[machine];
        const std::size_t t = reached(machine);
        const double mine = course.log_weights[t], draw = course.draws[t];
        if (is_below(draw, mine - course.bound)) return Turn::learn;
        if (!is_below(draw, mine - leader_of(machine).at(t))) return Turn::skip;
        const Largest largest = largest_at(machine, t);
        course.bound = largest.possible;
        if (is_below(draw, mine - largest.possible)) return Turn::learn;
        return is_below(draw, mine - largest.known) ? Turn::wait : Turn::skip;
    }

    // The probability with which the machine learns samples from here on, should weights stay as they are known.
    double chance(std::size_t machine) const {
        if (n_kernels_ == 1) return 1.0;
        const std::size_t t = reached(machine);
        return std::exp(courses_[machine].log_weights[t] - leader_of(machine).at(t));
    }
    // What the machine draws for a sample.
    double draw(std::size_t machine, std::size_t t) const { return courses_[machine].draws[t]; }

    // The machine is through with one more sample.
    void pass(std::size_t machine, double log_weight) {
        Course& course = courses_[machine];
        const std::uint32_t next = course.reached.load(std::memory_order_relaxed) + 1;
        course.log_weights[next] = log_weight;
        course.reached.store(next, std::memory_order_release);
        if (n_kernels_ > 1) leader_of(machine).meet(next, log_weight);
    }

  private:
    struct alignas(64) Course {
        std::atomic<std::uint32_t> reached{0};
        double bound;                         // what the largest weight cannot exceed any more
        double log_weights[kWindowRows + 1];  // before each sample, as far as reached
        double draws[kWindowRows] = {};
    };
    // The largest weight of a target before each sample among the machines that have come as far. Of two threads that
    // put theirs down at the same time one may be lost: any weight that stands here is one that is not exceeded.
    struct alignas(64) Leader {
        std::atomic<double> log_weights[kWindowRows + 1];

        double at(std::size_t t) const { return log_weights[t].load(std::memory_order_relaxed); }
        void meet(std::size_t t, double log_weight) {
            if (log_weight > at(t)) log_weights[t].store(log_weight, std::memory_order_relaxed);
        }
    };
    struct Largest {
        double known, possible;
    };

    // Whether log(draw) < bound; mostly 1 - 1 / draw <= log(draw) <= draw - 1 tells.
    static bool is_below(double draw, double bound) {
        if (draw - 1.0 < bound) return true;
        if (draw - 1.0 >= bound * draw) return false;
        return std::log(draw) < bound;
    }

    Leader& leader_of(std::size_t machine) { return leaders_[machine / n_kernels_]; }
    const Leader& leader_of(std::size_t machine) const { return leaders_[machine / n_kernels_]; }

    // What the largest weight of a target before sample t is known to be at least and at most.
    Largest largest_at(std::size_t machine, std::size_t t) const {
        const std::size_t first = machine / n_kernels_ * n_kernels_;
        const double mine = courses_[machine].log_weights[t];
        Largest largest{mine, mine};
        for (std::size_t other = first; other < first + n_kernels_; ++other) {
            const Course& course = courses_[other];
            const std::size_t reached = course.reached.load(std::memory_order_acquire);
            const double weight = course.log_weights[std::min(reached, t)];
            largest.possible = std::max(largest.possible, weight);
            if (reached >= t) largest.known = std::max(largest.known, weight);
        }
        return largest;
    }

    std::size_t n_kernels_;
    std::uint64_t seed_;
    std::unique_ptr<Course[]> courses_;
    std::unique_ptr<Leader[]> leaders_;  // of each target
};

}  // namespace steelyard
