// Parallel loops. Threads are started for each call, and every task is finished before the call returns.
// For a problem that is too small for several threads, the caller passes n_threads = 1.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <type_traits>
#if defined(_WIN32)
#include <chrono>
#include <thread>
#endif

namespace steelyard {

// Reference to a callable. The callable must exist until the called function returns.
// Functions with a reference compile faster than templates that are instantiated for every loop body.
template <class... Arguments>
class CallableReference {
  public:
    template <class Body>
        requires(!std::is_same_v<std::remove_cvref_t<Body>, CallableReference>)
    CallableReference(Body&& body)  // NOLINT(google-explicit-constructor): callers pass lambdas directly
        : object_(const_cast<void*>(static_cast<const void*>(std::addressof(body)))),
          call_([](void* object, Arguments... arguments) {
              (*static_cast<std::remove_reference_t<Body>*>(object))(static_cast<Arguments>(arguments)...);
          }) {}
    void operator()(Arguments... arguments) const { call_(object_, static_cast<Arguments>(arguments)...); }

  private:
    void* object_;
    void (*call_)(void*, Arguments...);
};

// Calls body(task) for every task in [0, n_tasks). body must not throw.
// Tasks must write to separate memory, and their results must not depend on the thread that runs them.
// Under these conditions, results do not depend on the number of threads.
void parallel_for(std::size_t n_tasks, unsigned n_threads, CallableReference<std::size_t> body);

// Sleeps until `value` differs from `old`. The thread that changes `value` must call notify_all.
// In libstdc++ 12 for Windows a notification can be lost between comparison and sleep.
// There this function polls instead.
template <class T>
void wait_for_change(const std::atomic<T>& value, T old) noexcept {
#if defined(_WIN32)
    while (value.load(std::memory_order_acquire) == old) std::this_thread::sleep_for(std::chrono::microseconds(50));
#else
    value.wait(old, std::memory_order_acquire);
#endif
}

// Barrier that spins before it sleeps.
// Threads usually arrive at a barrier within microseconds of each other, faster than a thread could sleep and wake up.
// On a busy machine a thread may arrive late, so waiting threads sleep after some iterations to free their cores.
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
        sleep(round);
    }

    // Returns whether threads have several times waited milliseconds for each other, as happens on a busy machine.
    // In this case one thread is faster than the team.
    bool is_slow() const { return long_waits_.load(std::memory_order_relaxed) >= kMaxLongWaits; }

  private:
    void sleep(unsigned round) noexcept;

    static constexpr unsigned kSpinIterations = 20000;  // about 10 microseconds
    static constexpr unsigned kMaxLongWaits = 2;
    const unsigned n_threads_;
    alignas(64) std::atomic<unsigned> arrived_{0};
    alignas(64) std::atomic<unsigned> round_{0};
    std::atomic<unsigned> long_waits_{0};
};

// Calls body(thread, n, barrier) on n threads at once, where n is at most n_threads.
// Threads that the system does not start, or that do not run soon, are not members of the team.
// body must not throw.
void run_team(unsigned n_threads, CallableReference<unsigned, unsigned, SpinBarrier&> body);

// Runs many short parallel loops on one team of threads. Between two loops the helper threads wait.
class TeamLoops {
  public:
    // Every thread of run_team() calls serve(). Thread 0 calls work(), which starts the loops with run().
    // The other threads take part in these loops until work() returns.
    // work must not throw.
    void serve(unsigned thread, unsigned n_threads, SpinBarrier& barrier, CallableReference<> work);

    // The following methods are called by work().
    // Ends the team if its barrier is slow. All later loops then run on thread 0 alone.
    void prepare();
    unsigned n_threads() const { return n_threads_; }
    // Calls body(thread) on all threads. If a call throws, its exception is rethrown on thread 0.
    void run(CallableReference<unsigned> body);

  private:
    void dismiss();

    unsigned n_threads_ = 1;
    SpinBarrier* barrier_ = nullptr;
    const CallableReference<unsigned>* body_ = nullptr;
    std::mutex mutex_;
    std::exception_ptr error_;
};

}  // namespace steelyard
