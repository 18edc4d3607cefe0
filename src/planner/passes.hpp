// The planner as a list of passes. Each takes its part of an Overlap, needs facts that earlier passes leave true, and
// leaves some true itself.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cost/cost_model.hpp"
#include "plan/whole_plan.hpp"
#include "planner/overlap.hpp"

namespace weft {

// Passes rely on these facts. A pass names them as a set of bits.
enum class PlanFact : std::uint8_t {
  graph,      // Plan::graph holds the merged and cut operations
  programs,   // every collective has its algorithm
  queues,     // every operation has a queue
  blocking,   // every transfer says whether compute waits for it
  blocks,     // every class has blocks and the order of their slots
  positions,  // waits or memory rest on positions in blocks: nobody may reorder these any more
  memory      // every value has its place
};
using PlanFacts = std::uint32_t;
constexpr PlanFacts facts(std::initializer_list<PlanFact> list) {
  PlanFacts set = 0;
  for (const PlanFact fact : list) set |= PlanFacts{1} << static_cast<unsigned>(fact);
  return set;
}

// The plan that the passes work on.
struct PlanDraft {
  const PlanRequest& request;
  const StepGraph& model_graph;
  const Overlap& overlap;
  const Cluster cluster;
  Plan plan = {};
  std::optional<CostModel> cost = {};     // of plan.graph, once there is one
  PipelineOrders pipeline = {};           // that the blocks are in
  std::optional<Unfolded> unfolded = {};  // of the finished plan
};

struct Pass {
  std::string_view name;
  PlanFacts needs = 0;
  PlanFacts precedes = 0;  // facts that may not hold yet
  PlanFacts leaves = 0;
  bool (*applies)(const Overlap&) = nullptr;  // null: always
  void (*run)(PlanDraft&) = nullptr;
};
std::span<const Pass> planner_passes();  // in the order in which they run

// Returns the plan that follows from a policy's decisions; `name` is the policy's.
WholePlan overlapped_plan(const PlanRequest& request, const SharedGraph& graph, std::string name,
                          const Overlap& overlap);

}  // namespace weft
