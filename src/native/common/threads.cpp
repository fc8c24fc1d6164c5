#include "common/threads.hpp"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

namespace steelyard {

void SpinBarrier::sleep(unsigned round) noexcept {
    constexpr std::chrono::milliseconds kLongWait{1};
    const auto begin = std::chrono::steady_clock::now();
    wait_for_change(round_, round);
    if (std::chrono::steady_clock::now() - begin > kLongWait) long_waits_.fetch_add(1, std::memory_order_relaxed);
}

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
    if (n_threads <= 1) {
        SpinBarrier alone(1);
        return body(0, 1, alone);
    }
    // On a busy machine a helper thread may start milliseconds later.
    // The team begins without the helpers that are not running after this time.
    constexpr std::chrono::microseconds kMaxStart{200};
    struct Team {
        std::mutex mutex;
        std::condition_variable changed;
        unsigned n_members = 1, n_working = 0;
        std::optional<SpinBarrier> barrier;  // set when the team begins
    };
    const auto team = std::make_shared<Team>();  // shared with helpers that start after this call has ended
    const auto help = [team, body] {
        std::unique_lock lock(team->mutex);
        if (team->barrier) return;
        const unsigned thread = team->n_members++;
        team->changed.notify_all();
        team->changed.wait(lock, [&] { return team->barrier.has_value(); });
        lock.unlock();
        body(thread, team->n_members, *team->barrier);
        lock.lock();
        if (--team->n_working == 0) team->changed.notify_all();
    };
    unsigned started = 1;
    try {
        for (; started < n_threads; ++started) std::thread(help).detach();
    } catch (const std::system_error&) {  // continue with the threads that the system could start
    }
    std::unique_lock lock(team->mutex);
    const auto begin_at = std::chrono::system_clock::now() + kMaxStart;
    team->changed.wait_until(lock, begin_at, [&] { return team->n_members == started; });
    team->barrier.emplace(team->n_members);
    team->n_working = team->n_members - 1;
    team->changed.notify_all();
    lock.unlock();
    body(0, team->n_members, *team->barrier);
    lock.lock();
    team->changed.wait(lock, [&] { return team->n_working == 0; });
}

void TeamLoops::serve(unsigned thread, unsigned n_threads, SpinBarrier& barrier, CallableReference<> work) {
    if (thread == 0) {
        n_threads_ = n_threads;
        barrier_ = &barrier;
        work();
        return dismiss();
    }
    for (;;) {
        barrier.wait();
        if (!body_) return;
        try {
            (*body_)(thread);
        } catch (...) {
            const std::lock_guard lock(mutex_);
            error_ = std::current_exception();
        }
        barrier.wait();
    }
}

void TeamLoops::prepare() {
    if (n_threads_ > 1 && barrier_->is_slow()) dismiss();
}

void TeamLoops::dismiss() {
    if (n_threads_ == 1) return;
    n_threads_ = 1;
    body_ = nullptr;
    barrier_->wait();
}

void TeamLoops::run(CallableReference<unsigned> body) {
    if (n_threads_ == 1) return body(0);
    body_ = &body;
    barrier_->wait();
    std::exception_ptr error;
    try {
        body(0);
    } catch (...) {
        error = std::current_exception();
    }
    barrier_->wait();  // the other threads do not use `body` and `error_` any more
    if (!error) error = error_;
    if (error) std::rethrow_exception(error);
}

}  // namespace steelyard
