#include "comm/idle.hpp"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace weft {

void IdleStrategy::happened(Clock::time_point now) {
  const std::chrono::nanoseconds waited = waiting_ ? now - since_ : std::chrono::nanoseconds(0);
  typical_ += (waited - typical_) / 4;
  waiting_ = false;
}

IdleStep IdleStrategy::next(Clock::time_point now) {
  if (!waiting_) {
    waiting_ = true;
    since_ = now;
  }
  const std::chrono::nanoseconds waited = now - since_;
  const std::chrono::nanoseconds awake = options_.spin + options_.yield;
  sleep_ = std::chrono::nanoseconds(0);
  // Sleeping makes waits look longer than they are. The factor lets the estimate fall again when a link became fast.
  const bool soon = typical_ <= 4 * awake;
  if (soon && waited < options_.spin) return IdleStep::spin;
  if (soon && waited < awake) return IdleStep::yield;
  sleep_ = std::clamp(std::max(waited, typical_) / options_.share, options_.shortest_sleep, options_.longest_sleep);
  return IdleStep::sleep;
}

bool WakeableSleep::sleep_until(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  const bool woken = changed_.wait_until(lock, until, [this] { return woken_; });
  woken_ = false;
  return woken;
}

bool WakeableSleep::take_wake() {
  const std::lock_guard lock(mutex_);
  return std::exchange(woken_, false);
}

void WakeableSleep::wake() {
  {
    const std::lock_guard lock(mutex_);
    woken_ = true;
  }
  changed_.notify_one();
}

namespace {

// The kernel's struct sched_attr in its first version; C libraries before 2.41 do not declare it.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes);
  std::uint32_t policy = 0;  // SCHED_OTHER
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0;  // SCHED_OTHER: the wanted slice, in nanoseconds
  std::uint64_t deadline = 0;
  std::uint64_t period = 0;
};

}  // namespace

void become_communication_thread() {
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  SchedulingAttributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != 0) return;  // keep a policy that somebody chose
  attributes.runtime = 100'000;        // the shortest that Linux grants
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace weft
