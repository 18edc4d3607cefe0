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
// Of 64-bit integers, on a queue away from what is measured.
PreparedCall call_between(const ProgramRequest& request, std::int64_t elements, ReduceOp op = ReduceOp::sum);

// When one rank began and ended what it was timed at, round by round.
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

// The times of a call's executions by the clock of emulated links: as its on_done is told them.
class NetworkTimes {
 public:
  using Clock = std::chrono::steady_clock;
  struct Execution {
    Clock::time_point began, ended;
  };
  void add(Clock::time_point began, Clock::time_point ended);
  // Of the next execution; waits until it is over.
  Execution take();

 private:
  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<Execution> executions_;
};

class BenchRanks {
 public:
  // `one_clock`: what ranks time begins when the last of them begins it, as a collective does; otherwise each rank
  // measures by itself, and the slowest counts.
  BenchRanks(Communicator& communicator, bool processes, bool one_clock);
  void barrier();
  // By position, the longest of all ranks.
  std::vector<Nanos> slowest(const std::vector<Nanos>& times);
  std::vector<Nanos> of_all(const RoundTimes& times);
  // Before every measurement: after a rest, in which links recover.
  void begin_together();
  // They need so long.
  void rest_at_least(Nanos time) { rest_ = std::max(rest_, time); }
  // With emulated links: starts the call on all ranks at one moment of the links' clock, and waits until it has ended.
  void run_at_once(Communicator::Prepared& call, const void* input, void* output);
  // What rank 0 says, up to 60 characters.
  std::string from_rank_0(const std::string& text);

 private:
  PreparedCall gate_call();

  Communicator& communicator_;
  bool processes_, one_clock_;
  Nanos rest_{5'000'000};
  Communicator::Prepared* barrier_;
  Communicator::Prepared* broadcast_;
  Communicator::Prepared* gate_;
  // What the gate's end sets off, and what came of it.
  std::function<Communicator::Handle()> behind_gate_;
  std::promise<Communicator::Handle> started_;
};

}  // namespace weft
