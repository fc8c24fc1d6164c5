// Which kernels learn which samples of a window. Part of koil.cpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>

#include "steelyard/random.hpp"

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
        : n_kernels_(n_kernels), seed_(seed), courses_(std::make_unique<Course[]>(n_machines)) {}

    // A window that begins with the sample of this number; to be called for every machine.
    void start(std::size_t machine, std::uint64_t first_sample, std::size_t n_rows, double log_weight) {
        Course& course = courses_[machine];
        course.reached.store(0, std::memory_order_relaxed);
        course.log_weights[0] = log_weight;
        course.bound = std::numeric_limits<double>::infinity();
        for (std::size_t t = 0; n_kernels_ > 1 && t < n_rows; ++t)
            course.log_draws[t] = std::log(uniform_at(seed_, first_sample + t, 1 + machine % n_kernels_));
    }

    // How many samples the machine is through with.
    std::size_t reached(std::size_t machine) const { return courses_[machine].reached.load(std::memory_order_relaxed); }

    // The machine's turn at the sample it has reached.
    Turn turn(std::size_t machine) {
        if (n_kernels_ == 1) return Turn::learn;
        Course& course = courses_[machine];
        const std::size_t t = reached(machine);
        const double mine = course.log_weights[t], drawn = course.log_draws[t];
        if (drawn < mine - course.bound) return Turn::learn;
        const Largest largest = largest_at(machine, t);
        course.bound = largest.possible;
        if (drawn < mine - largest.possible) return Turn::learn;
        return drawn < mine - largest.known ? Turn::wait : Turn::skip;
    }

    // Whether the machine is going to learn a later sample, should weights stay as they are known.
    bool expects(std::size_t machine, std::size_t t) const {
        const Course& course = courses_[machine];
        return n_kernels_ == 1 || course.log_draws[t] < course.log_weights[reached(machine)] - course.bound;
    }

    double chance(std::size_t machine) const {
        const double largest = largest_at(machine, reached(machine)).possible;
        return std::exp(courses_[machine].log_weights[reached(machine)] - largest);
    }

    // The machine is through with one more sample.
    void pass(std::size_t machine, double log_weight) {
        Course& course = courses_[machine];
        const std::uint32_t next = course.reached.load(std::memory_order_relaxed) + 1;
        course.log_weights[next] = log_weight;
        course.reached.store(next, std::memory_order_release);
    }

  private:
    struct alignas(64) Course {
        std::atomic<std::uint32_t> reached{0};
        double bound;                         // what the largest weight cannot exceed any more
        double log_weights[kWindowRows + 1];  // before each sample, as far as reached
        double log_draws[kWindowRows];
    };
    struct Largest {
        double known, possible;
    };

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
};

}  // namespace steelyard
