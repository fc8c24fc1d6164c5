#include "common/interrupt.hpp"

#include <atomic>
#include <chrono>

namespace steelyard {

namespace {

using Clock = std::chrono::steady_clock;
constexpr Clock::duration kMinInterval = std::chrono::milliseconds(50);

std::atomic<InterruptCheck> registered_check{nullptr};

}  // namespace

void set_interrupt_check(InterruptCheck check) noexcept { registered_check.store(check, std::memory_order_relaxed); }

void poll_interrupt() {
    thread_local Clock::time_point last = Clock::now();
    const Clock::time_point now = Clock::now();
    if (now - last < kMinInterval) return;
    last = now;
    if (const InterruptCheck check = registered_check.load(std::memory_order_relaxed)) check();
}

}  // namespace steelyard
