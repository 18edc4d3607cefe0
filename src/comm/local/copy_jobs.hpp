// Copies and reductions that threads share: a thread with spare time takes one, and a thread that needs a job makes
// sure that it is done.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "comm/landing.hpp"

namespace weft {

class CopyJobs {
 public:
  struct Job {
    LandingWork work;
    bool taken = false;  // by a thread that works on it; under the lock
  };

  // Jobs must stay where they are until they are finished or cleared.
  void offer(Job& job);
  // Carries out one of the offered jobs. Returns false where there is none.
  bool help();
  // Returns when the job is done.
  void finish(Job& job);
  // Forgets all jobs. When it returns, no memory is touched any more.
  void clear();

 private:
  void carry_out(Job& job);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Job*> offered_;
  int taken_ = 0;
  std::atomic<bool> cleared_{false};
};

}  // namespace weft
