// What the ranks of a benchmark need from each other: to begin together, and to agree on their times.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "base/units.hpp"
#include "collective/algorithms.hpp"
#include "comm/communicator.hpp"

namespace weft {

std::vector<std::int64_t> all_ranks(std::int64_t count);

// When one rank began and ended what it was timed at, round by round.
class RoundTimes {
 public:
  using Clock = std::chrono::steady_clock;
  void add(Clock::time_point begin, Clock::time_point end) {
    add(Nanos{std::chrono::nanoseconds(begin.time_since_epoch()).count()},
        Nanos{std::chrono::nanoseconds(end.time_since_epoch()).count()});
  }
  void add(Nanos begin, Nanos end) {
    begins_.push_back(begin);
    ends_.push_back(end);
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
  void add(Clock::time_point began, Clock::time_point ended);
  // Those of the next execution; waits until it is over.
  void take(RoundTimes& into);

 private:
  std::mutex mutex_;
  std::condition_variable added_;
  RoundTimes times_;
  std::size_t taken_ = 0;
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
  // What an all_gather of a few bytes from every rank takes: the median, of all ranks.
  Nanos small_gather(Algorithm algorithm, Bytes of_rank);
  // What rank 0 says, up to 60 characters.
  std::string from_rank_0(const std::string& text);

 private:
  Communicator& communicator_;
  bool processes_, one_clock_;
  Communicator::Prepared* barrier_;
  Communicator::Prepared* broadcast_;
};

}  // namespace weft
