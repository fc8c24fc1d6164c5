// Splits a range of tasks over a few threads. Threads are started for the call and joined before it
// returns: nothing survives a fork, and a caller below the size where it pays asks for one thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

namespace steelyard {

// Calls body(task) for every task in [0, n_tasks). Tasks must not share what they write, and the result
// must not depend on which thread runs a task; then it does not depend on the number of threads.
// body must not throw.
template <class Body>
void parallel_for(std::size_t n_tasks, unsigned n_threads, Body&& body) {
    if (n_threads <= 1 || n_tasks <= 1) {
        for (std::size_t task = 0; task < n_tasks; ++task) body(task);
        return;
    }
    std::atomic<std::size_t> next{0};
    auto work = [&] {
        for (std::size_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < n_tasks;) body(task);
    };
    const std::size_t wanted = n_threads < n_tasks ? n_threads : n_tasks;
    std::vector<std::jthread> helpers;
    helpers.reserve(wanted - 1);
    for (std::size_t i = 1; i < wanted; ++i) helpers.emplace_back(work);
    work();
    // The helpers join as they go out of scope, also when starting one of them failed.
}

// Where the threads of a team wait for each other. They are expected within microseconds of one another, which
// is less than sleeping and waking takes; a thread whose partners have lost their core gives up its own.
class Meeting {
  public:
    explicit Meeting(unsigned n_threads) : n_threads_(n_threads) {}

    void wait() noexcept {
        const unsigned round = round_.load(std::memory_order_relaxed);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == n_threads_) {
            arrived_.store(0, std::memory_order_relaxed);
            round_.store(round + 1, std::memory_order_release);
            return;
        }
        for (unsigned looks = 0; round_.load(std::memory_order_acquire) == round; ++looks)
            if (looks >= kLooks) std::this_thread::yield();
    }

  private:
    static constexpr unsigned kLooks = 2000;
    const unsigned n_threads_;
    alignas(64) std::atomic<unsigned> arrived_{0};
    alignas(64) std::atomic<unsigned> round_{0};
};

// Calls body(thread, n, meeting) on n threads at once, n being n_threads or as many as could be started.
// body must not throw.
template <class Body>
void run_team(unsigned n_threads, Body&& body) {
    std::atomic<Meeting*> meeting{nullptr};
    std::vector<std::jthread> helpers;
    unsigned started = 1;  // written before the meeting is announced, read after
    const auto help = [&](unsigned thread) {
        meeting.wait(nullptr);
        body(thread, started, *meeting.load());
    };
    helpers.reserve(n_threads - 1);
    try {
        for (; started < n_threads; ++started) helpers.emplace_back(help, started);
    } catch (const std::system_error&) {  // the system has no more threads to give: fewer do the work
    }
    Meeting here(started);
    meeting.store(&here);
    meeting.notify_all();
    body(0, started, here);
    helpers.clear();  // joins, before the meeting goes
}

}  // namespace steelyard
