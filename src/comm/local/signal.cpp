#include "comm/local/signal.hpp"

#include <sched.h>

namespace weft {

void Signal::wait(Clock::time_point until, std::chrono::nanoseconds spin) {
  const Clock::time_point stop = std::min(until, Clock::now() + spin);
  while (Clock::now() < stop) {
    if (raised_.load(std::memory_order_acquire)) return;
    sched_yield();  // there may be more ranks than cores
  }
  std::unique_lock lock(mutex_);
  sleeping_ = true;
  condition_.wait_until(lock, until, [&] { return raised_.load(std::memory_order_acquire); });
  sleeping_ = false;
}

}  // namespace weft
