// What the ranks themselves take for a call, a step, a message and a byte, beside what links take, while all of them
// are at work.
//
// It is told apart by small collectives that differ in one thing: how many steps follow each other, how many messages a
// step has, how many bytes (still within what links let through at once, and beyond). They take turns with what is
// compared with them: what slows the machine slows both.
#pragma once

#include <vector>

#include "app/world/bench_ranks.hpp"
#include "app/world/measured_links.hpp"

namespace weft {

class HandoffProbe {
 public:
  HandoffProbe(Communicator& communicator, BenchRanks& ranks, const MeasuredLink& link);
  // All its gathers once. All ranks call it.
  void time_once();
  // By the medians of all rounds. All ranks call it, and get the same.
  HostWork result();

 private:
  struct Gather {
    Communicator::Prepared* call = nullptr;
    RoundTimes times;
  };
  Gather gather_of(Algorithm algorithm, Bytes of_rank, std::int64_t parts, Collective kind = Collective::all_gather);
  Nanos median_of(const Gather& gather);

  Communicator& communicator_;
  BenchRanks& ranks_;
  MeasuredLink link_;
  Bytes many_, too_many_;  // bytes of a rank: within what links let through at once, and beyond
  std::vector<std::int64_t> buffer_;
  Gather direct_, in_parts_, ring_, both_ways_, gathered_, scattered_, reduced_, kept_;
};

}  // namespace weft
