// What no schedule can beat. The same number for every policy: it knows the model, the cluster and the layout only.
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
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost/cost_model.hpp"
#include "graph/step_graph.hpp"

namespace weft {

// No operation is cut into more (but transfers of a step, whose reader waits for all parts: their chains are whole).
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
  // By resource, or empty: what it may do at once because it was idle before, in any window but not on top of every
  // period.
  std::vector<double> burst_ns = {};
};

struct Bound {
  double period_ns = 0;
  std::int32_t resource = -1;  // the one that decides
  std::int32_t node = -1;      // v; -1: the resource's work alone
  double head_ns = 0, work_ns = 0, tail_ns = 0;
};

// The largest over all (v, R). Where the problem is so large that this would take long, over an even sample of v:
// still a bound, perhaps a weaker one.
Bound lower_bound(const BoundProblem& problem);

struct StepBound {
  double seconds = 0;
  std::string explanation;  // "stage 3 compute: 14.4 s of work, 0.2 s before, 0.3 s after"
};
StepBound step_bound(const StepGraph& graph, const CostModel& cost);

}  // namespace weft
