// What the ranks themselves take for a call, a step, a message and a byte, beside what links take, while all of them
// are at work.
//
// Small collectives tell them apart that differ in one thing: how many steps follow each other, how many messages a
// step has, how many bytes (still within what links let through at once, and beyond), whether they are reduced. They
// take turns with what is compared with them: what slows the machine slows both.
#pragma once

#include <vector>

#include "calibrate/links/bench_ranks.hpp"
#include "calibrate/links/host_fit.hpp"

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
    HostSample sample;  // its time comes with the result
    Communicator::Prepared* call = nullptr;
    RoundTimes times;
  };
  Probe probe_of(HostPart part, Collective kind, Algorithm algorithm, Bytes of_rank, std::int64_t parts = 1);
  void run(Probe& probe);

  Communicator& communicator_;
  BenchRanks& ranks_;
  MeasuredLink link_;
  std::vector<std::int64_t> input_, output_;
  std::vector<Probe> probes_;
  Probe after_;        // what comes after a longer one takes longer: it does not count
  RoundTimes copied_;  // in a rank's own memory
};

}  // namespace weft
