// Parallel loops. Threads are started for each call, and every task is finished before the call returns. Callers
// request one thread if the problem is too small for several.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

namespace steelyard {

// Calls body(task) for every task in [0, n_tasks). Tasks must write to separate memory, and their results must not
// depend on the thread that runs them; then results do not depend on the number of threads. body must not throw.
template <class Body>
void parallel_for(std::size_t n_tasks, unsigned n_threads, Body&& body) {
    if (n_threads <= 1 || n_tasks <= 1) {
        for (std::size_t task = 0; task < n_tasks; ++task) body(task);
        return;
    }
    // On a busy machine a helper thread may start milliseconds later, when no task is left. The call does not wait for
    // such a thread: it owns a share of the counters and touches nothing else of the call once all tasks are taken.
    struct Counters {
        std::atomic<std::size_t> next{0}, done{0};
    };
    const auto counters = std::make_shared<Counters>();
    const auto work = [counters, n_tasks, run = std::addressof(body)] {
        std::size_t n_done = 0;
        for (std::size_t task; (task = counters->next.fetch_add(1, std::memory_order_relaxed)) < n_tasks; ++n_done)
            (*run)(task);
        if (n_done && counters->done.fetch_add(n_done, std::memory_order_acq_rel) + n_done == n_tasks)
            counters->done.notify_all();
    };
    const std::size_t wanted = n_threads < n_tasks ? n_threads : n_tasks;
    try {
        for (std::size_t i = 1; i < wanted; ++i) std::thread(work).detach();
    } catch (const std::system_error&) {  // the system cannot start more threads, so the started threads do the work
    }
    work();
    for (std::size_t done; (done = counters->done.load(std::memory_order_acquire)) < n_tasks;)
        counters->done.wait(done, std::memory_order_acquire);
}

// Barrier that spins first. Threads usually arrive within microseconds of each other, faster than a thread could sleep
// and wake up. On a busy machine another process may run instead of a thread of the team, so a waiting thread sleeps
// after some iterations and leaves its core to that process.
class SpinBarrier {
  public:
    explicit SpinBarrier(unsigned n_threads) : n_threads_(n_threads) {}

    void wait() noexcept {
        const unsigned round = round_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_threads_) {
            arrived_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
            round_.notify_all();
            return;
        }
        for (unsigned n_spins = 0; n_spins < kSpinIterations; ++n_spins)
            if (round_.load(std::memory_order_acquire) != round) return;
        round_.wait(round, std::memory_order_acquire);
    }

  private:
    static constexpr unsigned kSpinIterations = 2000;
    const unsigned n_threads_;
    alignas(64) std::atomic<unsigned> arrived_{0};
    alignas(64) std::atomic<unsigned> round_{0};
};

// Calls body(thread, n, barrier) on n threads at once; n is n_threads or the number of threads that could be started.
// body must not throw.
template <class Body>
void run_team(unsigned n_threads, Body&& body) {
    std::atomic<SpinBarrier*> meeting{nullptr};
    std::vector<std::jthread> helpers;
    unsigned started = 1;  // written before the barrier is published, read afterwards
    const auto help = [&](unsigned thread) {
        meeting.wait(nullptr);
        body(thread, started, *meeting.load());
    };
    helpers.reserve(n_threads - 1);
    try {
        for (; started < n_threads; ++started) helpers.emplace_back(help, started);
    } catch (const std::system_error&) {  // the system cannot start more threads, so the started threads do the work
    }
    SpinBarrier here(started);
    meeting.store(&here);
    meeting.notify_all();
    body(0, started, here);
    helpers.clear();  // joins the threads before the barrier is destroyed
}

}  // namespace steelyard
