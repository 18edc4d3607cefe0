#include "base/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace weft {

void parallel_for(std::size_t count, std::size_t jobs, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::size_t failed_round = count;
  std::exception_ptr error;
  const auto run = [&] {
    while (!failed) {
      const std::size_t i = next++;
      if (i >= count) return;
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failed = true;
        if (i < failed_round) {
          failed_round = i;
          error = std::current_exception();
        }
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    const std::size_t others = std::min(std::max<std::size_t>(jobs, 1), std::max<std::size_t>(count, 1)) - 1;
    for (std::size_t i = 0; i < others; ++i) threads.emplace_back(run);
    run();
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace weft
