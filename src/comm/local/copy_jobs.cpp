#include "comm/local/copy_jobs.hpp"

#include <algorithm>

namespace weft {
namespace {

// Bytes copied between two checks whether the job is still wanted: about 20 us.
constexpr std::int64_t kBytesBetweenChecks = 128 << 10;

}  // namespace

void CopyJobs::offer(Job& job) {
  const std::lock_guard lock(mutex_);
  offered_.push_back(&job);
}

bool CopyJobs::help() {
  std::unique_lock lock(mutex_);
  if (offered_.empty()) return false;
  Job* const job = offered_.front();
  offered_.erase(offered_.begin());
  job->taken = true;
  ++taken_;
  lock.unlock();
  carry_out(*job);
  lock.lock();
  job->taken = false;
  --taken_;
  lock.unlock();
  changed_.notify_all();
  return true;
}

void CopyJobs::finish(Job& job) {
  {
    std::unique_lock lock(mutex_);
    std::erase(offered_, &job);
    changed_.wait(lock, [&] { return !job.taken; });
  }
  if (!job.work.done()) carry_out(job);
}

void CopyJobs::clear() {
  cleared_ = true;
  std::unique_lock lock(mutex_);
  offered_.clear();
  changed_.wait(lock, [&] { return taken_ == 0; });
}

void CopyJobs::carry_out(Job& job) {
  while (!job.work.done() && !cleared_) job.work.advance(kBytesBetweenChecks);
}

}  // namespace weft
