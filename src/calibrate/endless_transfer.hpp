// A transfer that runs beside whatever the ranks compute: one all_reduce after the other on all ranks.
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
  // A ring of so many fp32 elements. All ranks make one, and call the functions below in the same order.
  EndlessTransfer(Communicator& communicator, std::int64_t elements, std::int64_t parts);

  // Returns the mean time of one round alone, over so many rounds.
  double seconds_of_one(int rounds);
  // The same where the caller starts each round and waits for it.
  double seconds_of_one_waited_for(int rounds);
  // What the links alone would need for one round.
  Nanos predicted(const Cluster& cluster) const;
  // Starts so many rounds; the number must be the same on all ranks.
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
