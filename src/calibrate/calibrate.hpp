// Measures, on the ranks of a run and with all of them busy, what a plan is made of: its operations, and what
// communication costs the computation beside it.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "calibrate/program_fit.hpp"
#include "calibrate/thread_blocks.hpp"
#include "cost/profile.hpp"
#include "exec/data/batches.hpp"
#include "exec/train_rank.hpp"
#include "plan/whole_plan.hpp"

namespace weft {

struct CalibrationJob {
  const WholePlan& step;               // any plan that holds the operations: the serial one
  std::vector<const WholePlan*> cuts;  // the same with its layers cut: smaller operations lose efficiency
  std::shared_ptr<const Corpus> corpus;
  std::chrono::nanoseconds budget = std::chrono::seconds(20);  // for all passes; a first and a second are always made
  Bytes largest_transfer{64 << 20};                            // of those that are timed in a device's streams
  // Called on every rank's worker with the share that is done, 0 .. 1.
  std::function<void(double)> on_progress = {};
};

// The same on all ranks. Ranks wait for each other in every step, so of each class it is the slowest one's operations
// that count.
struct Calibration {
  std::map<OpKey, Nanos> operations;  // median of all executions of the key there; of several classes the mean
  Nanos between_operations;           // from the end of one to the begin of the next, median
  Nanos handoff;                      // what a transfer takes beyond its links, mean
  Nanos wake;                         // and how much longer it takes where a rank's compute waits for it
  // How much longer all operations together took beside a transfer that never ends: 0.1 is 10 %.
  double compute_slowdown = 0;
  double transfer_slowdown = 0;  // the other way round
  double further_slowdown = 0;   // of compute, by every transfer at once but the first; known of devices alone
  double waiting_slowdown = 0;   // of compute, by a transfer that waits for its other ranks; likewise
  std::vector<TransferBeside> beside = {};  // what thread blocks were chosen from
  std::optional<ExpertLoad> expert_load = {};
  LibraryProfile library = {};                    // where the transport has one
  std::optional<ProgramOverheads> programs = {};  // of a device's streams, where plans have programs of our own
};

// All ranks call it. Runs the computation of the step pass after pass, without its transfers. On a device that has
// collectives it prepares and connects some of them.
Calibration calibrate_rank(const CalibrationJob& job, Communicator& communicator, const Processor& processor);

// `device` as this machine has turned out to be.
void apply(const Calibration& calibration, DeviceProfile& device);

}  // namespace weft
