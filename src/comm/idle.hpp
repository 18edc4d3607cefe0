// What a communication thread does while it waits for a library that must be polled. It first polls continuously,
// because most answers come soon; then it yields between polls; then it sleeps, longer the longer nothing happened,
// because the compute thread needs the core. The sleep itself, which another thread can end, is here too.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace weft {

struct IdleOptions {
  std::chrono::nanoseconds spin = std::chrono::microseconds(20);            // polls without a break for so long,
  std::chrono::nanoseconds yield = std::chrono::microseconds(40);           // then lets others run between polls,
  std::chrono::nanoseconds shortest_sleep = std::chrono::microseconds(20);  // then sleeps between polls:
  std::chrono::nanoseconds longest_sleep = std::chrono::microseconds(200);
  // A sleep is the time waited so far, or the recent typical wait, divided by this: an event after time t is noticed
  // about t / share late.
  std::int64_t share = 8;
};

enum class IdleStep : std::uint8_t { spin, yield, sleep };

// A pure decision: its only clock is the argument. It learns how long waits take. On a slow link, where the next event
// is milliseconds away, it sleeps at once, because each poll costs the compute thread about 10 us.
class IdleStrategy {
 public:
  using Clock = std::chrono::steady_clock;

  explicit IdleStrategy(const IdleOptions& options = {}) : options_(options) {}

  // Something happened; the next question begins a new wait.
  void happened(Clock::time_point now);
  IdleStep next(Clock::time_point now);
  // How long to sleep; of the last next().
  std::chrono::nanoseconds sleep() const { return sleep_; }

 private:
  IdleOptions options_;
  Clock::time_point since_;
  std::chrono::nanoseconds typical_{0};  // wait, the recent ones counting more
  std::chrono::nanoseconds sleep_{0};
  bool waiting_ = false;
};

// A sleep that another thread ends. A wake() before the sleep ends the next one at once.
class WakeableSleep {
 public:
  using Clock = std::chrono::steady_clock;

  // True where it was woken.
  bool sleep_until(Clock::time_point until);
  bool take_wake();  // whether wake() was called since; does not sleep
  void wake();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
};

// Tells the scheduler that this thread sleeps often, runs briefly and wants to run at once: timers without slack, a
// short time slice (which on Linux 6.12 and later lets it preempt a thread with a longer one). Needs no rights;
// what the system does not know is left alone.
void become_communication_thread();

}  // namespace weft
