// A thread that does one thing after the other while its owner goes on, with less of the processor than the owner.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace weft {

class BackgroundTask {
 public:
  BackgroundTask();
  ~BackgroundTask();  // waits for what is under way
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  // Waits until the one before has ended. `task` must not throw.
  void start(std::function<void()> task);
  void wait();
  void wait_at_most(std::chrono::milliseconds time);  // or until it is done

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> task_;  // null: nothing is under way
  bool over_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace weft
