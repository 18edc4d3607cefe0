// Measures how much time the ranks themselves need for a call, a step, a message and a byte, beside the time of the
// links, while all ranks are at work.
//
// It times small collectives that differ in one thing each: the number of steps, the messages of a step, the bytes
// (within what links let through at once, and beyond), and whether they are reduced. They take turns with the programs
// that they are compared with, so that whatever slows the machine slows both.
#pragma once

#include <vector>

#include "calibrate/links/bench_ranks.hpp"
#include "calibrate/links/host_fit.hpp"

namespace weft {

class HandoffProbe {
 public:
  HandoffProbe(Communicator& communicator, BenchRanks& ranks, const MeasuredLink& link);
  // Runs all its collectives once. All ranks call it.
  void time_once();
  // Uses the medians of all rounds. All ranks call it, and all get the same result.
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
  Probe after_;        // runs after a long collective, which slows the next one; its time does not count
  RoundTimes copied_;  // of a copy in the rank's own memory
};

}  // namespace weft
