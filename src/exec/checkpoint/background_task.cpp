#include "exec/checkpoint/background_task.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <utility>

namespace weft {
namespace {

// Computation goes first: whoever trains waits for every rank.
constexpr int kNice = 10;

void be_modest() {
  // On Linux a thread has a priority of its own.
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kNice);
}

}  // namespace

BackgroundTask::BackgroundTask() : thread_([this] { run(); }) {}

BackgroundTask::~BackgroundTask() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BackgroundTask::start(std::function<void()> task) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return task_ == nullptr; });
  task_ = std::move(task);
  changed_.notify_all();
}

void BackgroundTask::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return task_ == nullptr; });
}

void BackgroundTask::wait_at_most(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [&] { return task_ == nullptr; });
}

void BackgroundTask::run() {
  be_modest();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return over_ || task_ != nullptr; });
    if (task_ == nullptr) return;
    lock.unlock();
    task_();
    lock.lock();
    task_ = nullptr;
    changed_.notify_all();
  }
}

}  // namespace weft
