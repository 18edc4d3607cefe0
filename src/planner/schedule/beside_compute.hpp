// Decides which transfers run beside compute: they start when their data is there and their queue reaches them. All
// others are waited for on the spot.
#pragma once

#include "plan/plan.hpp"

namespace weft {

struct BesideCompute {
  // Gradient reductions start as soon as backward has finished their gradients: the once-a-step ones of ZeRO 0 and 1,
  // the per-layer ones that ZeRO 2 and 3 make in every micro-batch.
  bool reductions = false;
  // Parameter gathers run under the next iteration's forward; those of ZeRO 3 ahead of the layer that needs them.
  bool gathers = false;
  bool receives = false;         // pipeline messages arrive under computation
  bool tensor_parallel = false;  // the traffic of tensor parallelism within layers
  bool linear_backward = false;  // of that traffic only what schedule/overlap_linear.hpp names
  bool cut_transfers = false;    // of that traffic what PartitionChoice::layers cuts
  bool own_rows_first = false;   // of that traffic the gathers whose readers begin with own rows (graph/own_rows.hpp)
  bool expert_parallel = false;  // the all-to-alls of experts
  // Compute waits for the last part of the gradients that return to their tokens: weight gradients do not hide it.
  bool wait_for_last_part = false;
  friend bool operator==(const BesideCompute&, const BesideCompute&) = default;
};

// Returns whether compute waits on the spot for this transfer of a layer.
bool is_waited_for(const Operation& operation, const BesideCompute& beside);

// Sets Issue::blocking for all but pipeline messages and what ZeRO 2 and 3 repeat, which need the order of blocks
// (schedule/overlap_receives.hpp, schedule/overlap_zero.hpp).
void let_run_beside_compute(Plan& plan, const BesideCompute& beside);

}  // namespace weft
