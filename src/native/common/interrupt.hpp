// Interruption of long computations. The native loops do not depend on the Python interpreter.
// The bindings register an interrupt check, and the native loops call the check periodically.
#pragma once

#include <atomic>
#include <exception>
#include <thread>

namespace steelyard {

// Interrupt check: throws an exception to stop a computation.
// A thread may call the interrupt check whenever its data is consistent.
using InterruptCheck = void (*)();

void set_interrupt_check(InterruptCheck check) noexcept;

// Calls the interrupt check if this thread has not called it for 50 ms. Solvers call this function in every step.
// If the interrupt check throws, the state of the solver is unchanged.
void poll_interrupt();

// poll_interrupt() for several threads: the thread that created the object polls, and all threads read the result.
class SharedPoll {
  public:
    bool goes_on() noexcept {
        if (std::this_thread::get_id() == creator_ && !reason_) poll();
        return !stopped_.load(std::memory_order_relaxed);
    }

    // Rethrows an interruption; the creating thread calls this after the other threads have ended.
    void rethrow() const {
        if (reason_) std::rethrow_exception(reason_);
    }

  private:
    void poll() noexcept {
        try {
            poll_interrupt();
        } catch (...) {
            reason_ = std::current_exception();
            stopped_.store(true, std::memory_order_relaxed);
        }
    }

    std::thread::id creator_ = std::this_thread::get_id();
    std::exception_ptr reason_;
    std::atomic<bool> stopped_{false};
};

}  // namespace steelyard
