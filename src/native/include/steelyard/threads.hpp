// Splits a range of tasks over a few threads. Threads are started for the call and joined before it
// returns: nothing survives a fork, and a caller below the size where it pays asks for one thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <thread>
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

}  // namespace steelyard
