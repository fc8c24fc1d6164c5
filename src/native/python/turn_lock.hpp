// A re-entrant lock for calls that take turns. Its state belongs to whoever holds the interpreter's lock, so that
// taking it costs a comparison where nobody else wants it. (This module asks for that lock on every Python: it does
// not say that it can do without.)
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>

namespace steelyard::bind {

class TurnLock {
  public:
    // Whether this thread could take it now; it then stays so until the interpreter's lock is given up.
    bool is_mine_to_take() const noexcept { return depth_ == 0 || owner_ == me(); }

    // Whether nobody holds it, this thread included; it then stays so until the interpreter's lock is given up.
    bool is_free() const noexcept { return depth_ == 0; }

    // Waits for at most so many seconds, for ever if they are negative; whether it was taken.
    bool acquire(double seconds) {
        if (depth_ == 0 ? !others_wait_long() : owner_ == me()) return take();
        const Waiting counted(*this);
        const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
        for (bool came_late = depth_ == 0; depth_ > 0 || came_late; came_late = false) {
            const auto left = seconds < 0.0 ? kLook : std::min(kLook, Seconds(deadline - Clock::now()));
            if (left.count() <= 0.0) return false;
            wait(left);
            if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
        }
        waiting_since_ = Clock::now();  // of the others, if there are any: one of those who waited has its turn
        return take();
    }

    void release() {
        if (depth_ == 0 || owner_ != me()) throw std::runtime_error("a lock that is not held cannot be released");
        if (--depth_ > 0 || n_waiting_ == 0) return;
        const std::lock_guard held(gate_->mutex);
        ++gate_->n_released;
        gate_->released.notify_all();
    }

    // In the child of a fork there are no other threads, neither one that holds it nor ones that wait.
    void start_anew_after_fork() {
        gate_.release();  // may be locked for ever; not worth its bytes
        gate_ = std::make_unique<Gate>();
        n_waiting_ = 0;
        if (owner_ != me()) depth_ = 0;
    }

  private:
    using Clock = std::chrono::steady_clock;
    using Seconds = std::chrono::duration<double>;
    static constexpr Seconds kLook{0.05};   // how often who waits looks for signals
    static constexpr Seconds kLong{0.005};  // after which whoever comes lets those who wait go first

    struct Gate {
        std::mutex mutex;
        std::condition_variable released;
        std::uint64_t n_released = 0;
    };

    // Who waits, from its first look to its turn: in between it wakes whenever the lock is given back.
    struct Waiting {
        explicit Waiting(TurnLock& lock) : lock_(lock) {
            if (lock_.n_waiting_++ == 0) lock_.waiting_since_ = Clock::now();
        }
        ~Waiting() { --lock_.n_waiting_; }
        Waiting(const Waiting&) = delete;
        Waiting& operator=(const Waiting&) = delete;
        TurnLock& lock_;
    };

    static unsigned long me() noexcept { return PyThread_get_thread_ident(); }

    bool others_wait_long() const { return n_waiting_ > 0 && Clock::now() - waiting_since_ > kLong; }

    bool take() noexcept {
        owner_ = me();
        ++depth_;
        return true;
    }

    void wait(Seconds most) {
        Gate& gate = *gate_;
        const std::uint64_t seen = gate.n_released;
        {
            nanobind::gil_scoped_release unlocked;
            std::unique_lock held(gate.mutex);
            gate.released.wait_for(held, most, [&] { return gate.n_released != seen; });
        }
    }

    unsigned long owner_ = 0;
    std::size_t depth_ = 0, n_waiting_ = 0;
    Clock::time_point waiting_since_{};
    std::unique_ptr<Gate> gate_ = std::make_unique<Gate>();
};

}  // namespace steelyard::bind
