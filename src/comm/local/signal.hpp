// A signal that something may have changed: any thread raises it, one thread waits for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace weft {

class Signal {
 public:
  using Clock = std::chrono::steady_clock;

  void raise() {
    raised_.store(true, std::memory_order_release);
    // Under the lock, or a thread about to sleep would miss it.
    const std::lock_guard lock(mutex_);
    if (sleeping_) condition_.notify_one();
  }

  // True once per raise.
  bool take() { return raised_.load(std::memory_order_relaxed) && raised_.exchange(false, std::memory_order_acquire); }

  // Waits until raised or `until`. Spins for `spin` first, because waking up costs tens of microseconds.
  void wait(Clock::time_point until, std::chrono::nanoseconds spin);

 private:
  std::atomic<bool> raised_{false};
  std::mutex mutex_;
  std::condition_variable condition_;
  bool sleeping_ = false;
};

}  // namespace weft
