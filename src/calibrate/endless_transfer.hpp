// A transfer that goes on and on beside whatever the ranks compute: all_reduce after all_reduce on all ranks.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "cluster/cluster.hpp"
#include "comm/communicator.hpp"

namespace weft {

class EndlessTransfer {
 public:
  // A ring of so many fp32 on all ranks. All make one, and call what follows in the same order.
  EndlessTransfer(Communicator& communicator, std::int64_t elements, std::int64_t parts);

  // One round alone, the mean of so many.
  double seconds_of_one(int rounds);
  // The same where the caller starts each round and waits for it.
  double seconds_of_one_waited_for(int rounds);
  // What the links alone would need for one round.
  Nanos predicted(const Cluster& cluster) const;
  // So many rounds from now on; the same number on all ranks.
  void start(std::int64_t rounds);
  bool over() const { return left_.load(std::memory_order_acquire) == 0; }
  // Waits for the last round; the seconds that all together took.
  double wait();

 private:
  using Clock = Transport::Clock;
  void next();

  Communicator& communicator_;
  std::shared_ptr<const Program> program_;
  std::vector<float> data_;
  Communicator::Prepared* call_;
  std::atomic<std::int64_t> left_{0};
  std::mutex mutex_;
  std::condition_variable ended_;
  Clock::time_point began_, last_ended_;
  Communicator::Handle handle_;
};

}  // namespace weft
