// The bound that no schedule beats. It depends only on model, cluster and layout, so it is one number for all policies.
//
// Take an operation v of iteration k and of iteration k+1. The operations S that must run between the two and use
// resource R need R for their whole work; before the first of them lies at least the shortest of their heads (longest
// chain of smallest parts from v), after the last at least the shortest of their tails. So
//     period >= min head + work on R + min tail
// for every v and R and every subset of S, and period >= all work on R.
//
// Operations may be cut into parts, part i of one then waits for part i of another, so a chain counts only the smallest
// part of each. Loop-carried edges are whole (a forward needs all its weights). "Between" therefore means one of two:
//   from the first part of v to the first part of the next v: what v reaches within its iteration;
//   from the last part of v to the last part of the next v: what v reaches in the next iteration.
// Both together would count parts of S that run beside v itself, unless v is a barrier.
//
// Compute and transfers of a rank slow each other down (bound/slowed.hpp), so a period is also at least the rank's
// compute with what its transfers add, and a link's work, with what it must rest before and after it, and what that
// compute adds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost/cost_model.hpp"
#include "graph/step_graph.hpp"

namespace weft {

// No operation is cut into more parts. (Transfers that run once a step may be, but their readers wait for all parts, so
// chains count them whole.)
inline constexpr int kMaxParts = 8;

struct BoundUse {
  std::int32_t resource = 0;
  double work_ns = 0;  // in one period, all micro-batches
};

struct BoundNode {
  std::vector<BoundUse> uses;
  double part_ns = 0;    // the smallest part of one instance
  bool once = true;      // false: one of several micro-batches; such a node cannot be v
  bool barrier = false;  // what follows it needs all of it, however it is cut (a global norm)
};

struct BoundEdge {
  std::int32_t from = 0, to = 0, distance = 0;
};

struct BoundProblem {
  std::int32_t resources = 0;
  std::vector<BoundNode> nodes;
  std::vector<BoundEdge> edges;
  // By resource, or empty: the work that it may do at once after it was idle. It shortens any single window, but not
  // every period.
  std::vector<double> burst_ns = {};
};

struct Bound {
  double period_ns = 0;
  std::int32_t resource = -1;  // the one that decides
  std::int32_t node = -1;      // v; -1: the resource's work alone
  double head_ns = 0, work_ns = 0, tail_ns = 0;
};

// Returns the largest bound over all (v, R). A very large problem is searched over an even sample of v; the result is
// still a bound, perhaps a weaker one.
Bound lower_bound(const BoundProblem& problem);

struct StepBound {
  double seconds = 0;
  std::string explanation;  // "stage 3 compute: 14.4 s of work, 0.2 s before, 0.3 s after"
};
StepBound step_bound(const StepGraph& graph, const CostModel& cost);
// The same for steps without a pipeline that finish a micro-batch before the next begins: what a step reduces and
// gathers once then has the time from the last backward to the first forward. 0 s where that is no other bound.
StepBound step_bound_in_turn(const StepGraph& graph, const CostModel& cost, std::int64_t stages);

}  // namespace weft
