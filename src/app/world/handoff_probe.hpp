// What the ranks themselves take for a call, a step, a message and a byte, beside what links take, while all of them
// are at work.
//
// It is told apart by small collectives that differ in one thing: how many steps follow each other, how many messages a
// step has, how many bytes (still within what links let through at once, and beyond), whether they are reduced. They
// take turns with what is compared with them: what slows the machine slows both.
#pragma once

#include <vector>

#include "app/world/bench_ranks.hpp"
#include "app/world/measured_links.hpp"

namespace weft {

class HandoffProbe {
 public:
  HandoffProbe(Communicator& communicator, BenchRanks& ranks, const MeasuredLink& link);
  // All its collectives once. All ranks call it.
  void time_once();
  // By the medians of all rounds. All ranks call it, and get the same.
  HostWork result();

 private:
  struct Probe {
    ProgramRequest request;
    Bytes of_rank;
    Communicator::Prepared* call = nullptr;
    RoundTimes times;
  };
  Probe probe_of(Collective kind, Algorithm algorithm, Bytes of_rank, std::int64_t parts = 1);
  void run(Probe& probe);
  Nanos median_of(const RoundTimes& times);
  Bytes burst_by(const HostWork& work);

  Communicator& communicator_;
  BenchRanks& ranks_;
  MeasuredLink link_;
  // Bytes of a rank: two that links let through at once, and more than that.
  Bytes many_, some_, too_many_;
  std::vector<std::int64_t> input_, output_;
  Probe direct_, in_parts_, ring_, both_ways_;  // of some
  Probe gathered_, scattered_, reduced_;        // of many
  Probe kept_;                                  // of too many
  Probe after_;                                 // what comes after a longer one takes longer: it does not count
  RoundTimes copied_;                           // many, in a rank's own memory
};

}  // namespace weft
