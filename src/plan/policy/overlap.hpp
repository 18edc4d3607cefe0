// What the policies share: the way from a graph and a choice of buckets to a plan. A policy says which transfers
// travel together and which of the once-a-step ones run beside computation.
#pragma once

#include <string>
#include <vector>

#include "plan/partition/merge.hpp"
#include "plan/policy/policy.hpp"

namespace weft {

struct Overlap {
  std::vector<MergeSet> buckets;
  bool reductions = false;  // once-a-step gradient reductions start as soon as backward has finished their gradients
  bool gathers = false;     // once-a-step parameter gathers run under the next iteration's forward
};
Plan overlapped_plan(const PlanRequest& request, const StepGraph& graph, std::string name, const Overlap& overlap);

}  // namespace weft
