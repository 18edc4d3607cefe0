// How a study says how far it has come. It prints nothing itself.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

// A task ("sweep", a policy that searches), the pieces of it that are done, and all of them. The first call of a task
// has done = 0, the last one done = total. Several tasks may be under way at once, on threads of their own.
using OnProgress = std::function<void(std::string_view task, std::size_t done, std::size_t total)>;

// Reports one task, from any thread, and its end when it goes out of scope.
class TaskProgress {
 public:
  TaskProgress(OnProgress on_progress, std::string task, std::size_t total)
      : on_progress_(std::move(on_progress)), task_(std::move(task)), total_(total) {
    report();
  }
  ~TaskProgress() {
    done_ = total_;
    report();
  }
  TaskProgress(const TaskProgress&) = delete;
  TaskProgress& operator=(const TaskProgress&) = delete;

  void advance(std::size_t pieces) {
    const std::lock_guard lock(mutex_);
    move_to(done_ + pieces);
  }
  // `share` of the task is done, 0..1. It never goes backwards.
  void reach(double share) {
    const std::lock_guard lock(mutex_);
    move_to(static_cast<std::size_t>(share * static_cast<double>(total_)));
  }

 private:
  // The destructor alone says the end.
  void move_to(std::size_t done) {
    if (done <= done_ || done >= total_) return;
    done_ = done;
    report();
  }
  void report() const {
    if (on_progress_) on_progress_(task_, done_, total_);
  }

  OnProgress on_progress_;
  std::string task_;
  std::size_t total_, done_ = 0;
  std::mutex mutex_;
};

}  // namespace weft
