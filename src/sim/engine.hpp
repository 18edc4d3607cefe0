// Simulates one repeating step event by event, in integer nanoseconds and deterministically, iteration after iteration
// until the pattern repeats.
//
// Three kinds of things take time. A *compute* operation occupies its rank's worker, one at a time; an *extra* one
// takes the worker only when the next compute operation is not ready, and then keeps it to its end. A *transfer* first
// waits out its latency, then moves bytes over shared resources: concurrent transfers slow down alike until no resource
// is above its capacity (max-min fairness in units of each transfer's own full speed). While a transfer is under way on
// a rank, that rank's compute runs slower, and the other way round, as the rank's interference says; so it may while a
// transfer waits for ranks that are late. A resource may save up capacity while it is idle (SimProblem::burst).
//
// Consecutive operations that nothing outside touches are simulated as one event (folding.hpp) as long as no other
// transfer comes near; the times are the same as without folding.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.hpp"
#include "timeline/timeline.hpp"

namespace weft {

struct ResourceUse {
  std::int32_t resource = 0;
  double share = 0;  // of the resource's capacity while the transfer runs at full speed; 0..1
};

struct SimCost {
  Nanos fixed;                   // compute: its duration; transfer: its latency
  Nanos moving;                  // transfer: time to move its bytes alone
  std::vector<ResourceUse> use;  // of a transfer while moving
  // Of a transfer: its slow-downs in place of its ranks', where it has its own; -1: it has not.
  double compute_slowdown = -1, transfer_slowdown = -1;
  bool waits_aside = false;  // while it waits for its other ranks, it slows nothing down
};

enum class SimQueue : std::uint8_t { compute, extra, transfer };

struct SimOperation {
  std::int32_t rank = 0;
  SimQueue queue = SimQueue::compute;
  std::int32_t cost = 0;  // index into SimProblem::costs
  JointId joint;          // transfers on several ranks with the same one are one; the first one's cost counts
  // Place in the rank's chain, counted from 0: compute and the transfers that compute waits for. Each member waits for
  // the one before, the first for the last of the previous iteration, by an edge of its own or through operations that
  // run beside the chain. -1: runs beside it.
  std::int32_t chain = -1;
};

struct SimRank {
  double compute_slowdown = 0;
  double transfer_slowdown = 0;
  Nanos wake{};                 // until compute starts that found its rank idle when a transfer beside the chain ended
  double further_slowdown = 0;  // of compute, by every further transfer beside it
  // Of compute, by a transfer that waits for its other ranks. Where it is 0, further ones that wait do not count
  // either.
  double waiting_slowdown = 0;
};

struct SimProblem {
  std::int32_t resources = 0;
  std::vector<SimRank> ranks;
  std::vector<SimCost> costs;
  std::vector<SimOperation> operations;
  std::vector<std::int32_t> edge_begin;  // operation i waits for edges[edge_begin[i] .. edge_begin[i+1])
  std::vector<Dependency> edges;
  // By resource, or empty: the most idle time that it saves up. A transfer that then begins to move is ahead by that
  // time.
  std::vector<Nanos> burst = {};
};

struct SimTimes {
  Nanos issued, ready, start, end;
};

// Counts the work of a simulation over all its iterations, including unfinished ones.
struct SimWork {
  std::int64_t operations = 0;  // that ended
  std::int64_t simulated = 0;   // with an event of their own, and one for each stretch of the others
};

struct SimResult {
  // Complete iterations, each with the times of every operation. The steady window starts with iteration
  // steady_first and spans `periods` iterations; at least one more complete iteration follows.
  std::vector<std::vector<SimTimes>> iterations;
  std::int32_t steady_first = 0;
  std::int32_t periods = 1;
  Nanos steady_begin;
  double period_ns = 0;
  bool repeats = false;  // false: a mean over the last half of the iterations
  SimWork work;
};

struct SimOptions {
  std::int32_t max_iterations = 8;  // at least 8 where nothing repeats
  bool fold = true;                 // false: every operation is an event
  bool names = true;  // false: simulate_plan leaves Timeline::names empty; for those who read figures only
};

// The edges must allow every operation to run (see find_run_order); an operation that never becomes ready is a broken
// invariant. Each operation must follow its own previous execution, as the edges of a queue make it, and no two of a
// rank's compute operations (or of its extra ones) may be ready at once. Throws Error where operations run ahead of
// others without end. Writes out every operation of every iteration: for small problems and tests
// (simulate_folded.hpp).
SimResult simulate(const SimProblem& problem, const SimOptions& options = {});

}  // namespace weft
