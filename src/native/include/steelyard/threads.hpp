// Splits a range of tasks over a few threads. Threads are started for the call and joined before it
// returns: nothing survives a fork, and a caller below the size where it pays asks for one thread.
#pragma once

#include <atomic>
#include <cstddef>
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

// Threads that wait for work of microseconds, which is less than starting a thread takes. They wait actively, and
// give the core to whoever wants it when the next piece of work does not come soon.
class Crew {
  public:
    explicit Crew(unsigned n_threads) {
        for (unsigned i = 1; i < n_threads; ++i) helpers_.emplace_back([this, i] { help(i); });
    }
    Crew(const Crew&) = delete;
    Crew& operator=(const Crew&) = delete;
    ~Crew() {
        work_ = nullptr;
        round_.fetch_add(1, std::memory_order_release);
        // The helpers join as they go out of scope.
    }

    // Calls body(share, n_shares) for every share, each on a thread of its own; n_shares is at most the number of
    // threads. What holds for the tasks of parallel_for holds here.
    template <class Body>
    void run(std::size_t n_shares, Body&& body) {
        if (n_shares <= 1) {
            if (n_shares == 1) body(std::size_t{0}, std::size_t{1});
            return;
        }
        body_ = &body;
        n_shares_ = n_shares;
        work_ = [](const Crew& crew, std::size_t share) {
            (*static_cast<std::remove_reference_t<Body>*>(crew.body_))(share, crew.n_shares_);
        };
        busy_.store(helpers_.size(), std::memory_order_relaxed);
        round_.fetch_add(1, std::memory_order_release);
        body(std::size_t{0}, n_shares);
        wait_until([this] { return busy_.load(std::memory_order_acquire) == 0; });
    }

  private:
    template <class Condition>
    static void wait_until(Condition&& holds) {
        constexpr int kTries = 4096;
        for (int tries = 0; !holds(); ++tries)
            if (tries > kTries) std::this_thread::yield();
    }

    void help(std::size_t share) {
        for (std::size_t round = 0;;) {
            wait_until([&] { return round_.load(std::memory_order_acquire) != round; });
            ++round;
            if (!work_) return;
            if (share < n_shares_) work_(*this, share);
            busy_.fetch_sub(1, std::memory_order_release);
        }
    }

    std::atomic<std::size_t> round_{0}, busy_{0};
    std::size_t n_shares_ = 0;
    void* body_ = nullptr;
    void (*work_)(const Crew& crew, std::size_t share) = nullptr;
    std::vector<std::jthread> helpers_;
};

}  // namespace steelyard
