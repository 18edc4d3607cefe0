// What the ranks of a benchmark need from each other: to begin together, and to agree on their times.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "collective/algorithms.hpp"
#include "comm/communicator.hpp"

namespace weft {

std::vector<std::int64_t> all_ranks(std::int64_t count);
Nanos median(std::vector<Nanos> times);
// The call works on 64-bit integers, on a queue that nothing measured uses.
PreparedCall call_between(const ProgramRequest& request, std::int64_t elements, ReduceOp op = ReduceOp::sum);

// The moments at which one rank began and ended each round of what is timed.
class RoundTimes {
 public:
  using Clock = std::chrono::steady_clock;
  void add(Clock::time_point begin, Clock::time_point end) {
    begins_.push_back({std::chrono::nanoseconds(begin.time_since_epoch()).count()});
    ends_.push_back({std::chrono::nanoseconds(end.time_since_epoch()).count()});
  }
  void clear() {
    begins_.clear();
    ends_.clear();
  }
  const std::vector<Nanos>& begins() const { return begins_; }
  const std::vector<Nanos>& ends() const { return ends_; }

 private:
  std::vector<Nanos> begins_, ends_;
};

// The times of a call's executions by the clock of emulated links, as the call's on_done reports them.
class NetworkTimes {
 public:
  using Clock = std::chrono::steady_clock;
  struct Execution {
    Clock::time_point began, ended;
  };
  void add(Clock::time_point began, Clock::time_point ended);
  // Returns the times of the next execution, and waits until it is over.
  Execution take();

 private:
  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<Execution> executions_;
};

class BenchRanks {
 public:
  // With `one_clock` a measurement begins when the last rank begins it, as a collective does. Without it each rank
  // measures by its own clock, and the slowest rank counts.
  BenchRanks(Communicator& communicator, bool processes, bool one_clock);
  void barrier();
  // Returns for each position the longest time of all ranks.
  std::vector<Nanos> slowest(const std::vector<Nanos>& times);
  std::vector<Nanos> of_all(const RoundTimes& times);
  // Every measurement starts with this. Ranks rest first, so that links recover.
  void begin_together();
  // Links need at least this long to recover.
  void rest_at_least(Nanos time) { rest_ = std::max(rest_, time); }
  // For emulated links: starts the call on all ranks at one moment of the links' clock, and waits until it has ended.
  void run_at_once(Communicator::Prepared& call, const void* input, void* output);
  // Returns rank 0's text on all ranks. The text has at most 60 characters.
  std::string from_rank_0(const std::string& text);

 private:
  PreparedCall gate_call();

  Communicator& communicator_;
  bool processes_, one_clock_;
  Nanos rest_{5'000'000};
  Communicator::Prepared* barrier_;
  Communicator::Prepared* broadcast_;
  Communicator::Prepared* gate_;
  // The call that starts when the gate opens, and its handle.
  std::function<Communicator::Handle()> behind_gate_;
  std::promise<Communicator::Handle> started_;
};

}  // namespace weft
