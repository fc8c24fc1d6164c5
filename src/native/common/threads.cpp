#include "common/threads.hpp"

#include <system_error>
#include <thread>
#include <vector>

namespace steelyard {

void parallel_for(std::size_t n_tasks, unsigned n_threads, CallableReference<std::size_t> body) {
    if (n_threads <= 1 || n_tasks <= 1) {
        for (std::size_t task = 0; task < n_tasks; ++task) body(task);
        return;
    }
    // On a busy machine a helper thread may start milliseconds late, when no task is left.
    // The call does not wait for a helper thread that starts too late.
    // The helper shares ownership of the counters and accesses no other data of the call after all tasks are taken.
    struct Counters {
        std::atomic<std::size_t> next{0}, done{0};
    };
    const auto counters = std::make_shared<Counters>();
    const auto work = [counters, n_tasks, body] {
        std::size_t n_done = 0;
        for (std::size_t task; (task = counters->next.fetch_add(1, std::memory_order_relaxed)) < n_tasks; ++n_done)
            body(task);
        if (n_done && counters->done.fetch_add(n_done, std::memory_order_acq_rel) + n_done == n_tasks)
            counters->done.notify_all();
    };
    const std::size_t wanted = n_threads < n_tasks ? n_threads : n_tasks;
    try {
        for (std::size_t i = 1; i < wanted; ++i) std::thread(work).detach();
    } catch (const std::system_error&) {  // continue with the threads that the system could start
    }
    work();
    for (std::size_t done; (done = counters->done.load(std::memory_order_acquire)) < n_tasks;)
        wait_for_change(counters->done, done);
}

void run_team(unsigned n_threads, CallableReference<unsigned, unsigned, SpinBarrier&> body) {
    std::atomic<SpinBarrier*> meeting{nullptr};
    std::vector<std::jthread> helpers;
    unsigned started = 1;  // written before and read after the barrier is published
    const auto help = [&](unsigned thread) {
        wait_for_change<SpinBarrier*>(meeting, nullptr);
        body(thread, started, *meeting.load());
    };
    helpers.reserve(n_threads - 1);
    try {
        for (; started < n_threads; ++started) helpers.emplace_back(help, started);
    } catch (const std::system_error&) {  // continue with the threads that the system could start
    }
    SpinBarrier here(started);
    meeting.store(&here);
    meeting.notify_all();
    body(0, started, here);
    helpers.clear();  // joins the threads before the barrier is destroyed
}

}  // namespace steelyard
