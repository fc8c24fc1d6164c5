// Lets somebody stop a computation that takes long. The loops know no interpreter: whoever runs them says once how
// to ask, and they ask now and then.
#pragma once

#include <atomic>
#include <exception>
#include <thread>

namespace steelyard {

// Throws if the computation shall end; called from any thread, at times when nothing is half done.
using InterruptCheck = void (*)();

void set_interrupt_check(InterruptCheck check) noexcept;

// For every step of a solver: looks at the clock, and asks when a thread has not asked for a twentieth of a second.
// What it throws passes through the caller, which leaves things as if it had never been called.
void poll_interrupt();

// The same for tasks on several threads: the thread that made it asks, and all see whether to go on.
class SharedPoll {
  public:
    bool goes_on() noexcept {
        if (std::this_thread::get_id() == maker_ && !reason_) ask();
        return !stopped_.load(std::memory_order_relaxed);
    }

    // By the maker, when the other threads have ended.
    void rethrow() const {
        if (reason_) std::rethrow_exception(reason_);
    }

  private:
    void ask() noexcept {
        try {
            poll_interrupt();
        } catch (...) {
            reason_ = std::current_exception();
            stopped_.store(true, std::memory_order_relaxed);
        }
    }

    std::thread::id maker_ = std::this_thread::get_id();
    std::exception_ptr reason_;
    std::atomic<bool> stopped_{false};
};

}  // namespace steelyard
