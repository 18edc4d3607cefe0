// What the ranks of a benchmark need from each other: to begin together, and to agree on their times.
#pragma once

#include <vector>

#include "base/units.hpp"
#include "comm/communicator.hpp"

namespace weft {

std::vector<std::int64_t> all_ranks(std::int64_t count);

class BenchRanks {
 public:
  BenchRanks(Communicator& communicator, bool processes);
  bool processes() const { return processes_; }
  void barrier();
  // By position, the longest of all ranks.
  std::vector<Nanos> slowest(const std::vector<Nanos>& times);
  // What it takes to hand a call to the communication thread and to learn that it is done, the slowest rank's median.
  Nanos handoff();
  // What rank 0 says, up to 60 characters.
  std::string from_rank_0(const std::string& text);

 private:
  Communicator& communicator_;
  bool processes_;
  Communicator::Prepared* barrier_;
  Communicator::Prepared* broadcast_;
};

}  // namespace weft
