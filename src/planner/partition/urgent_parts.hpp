// What travels together and in which parts where the order of the next use decides (policy `priority`): small
// parameters of a layer together, large ones in parts of about one size.
#pragma once

#include <optional>
#include <vector>

#include "cost/cost_model.hpp"
#include "graph/step_graph.hpp"
#include "planner/partition/merge.hpp"

namespace weft {

struct UrgentParts {
  std::vector<MergeSet> sets;
  std::vector<std::int32_t> parts;  // by operation of the graph, for cut_operations
};

// `part`: how large parts are; without, the size that costs least (best_part), and what replicas of shards sum stays
// whole, because parts of it gain nothing by themselves. Layers of less than a part travel together, and are updated
// together.
UrgentParts urgent_parts(const StepGraph& graph, const CostModel& cost, std::optional<Bytes> part = {});

// The size p of parts for transfers like `probe` with B bytes in all. An urgent one waits for the part that is under
// way, and all parts together take the time of B / p of them: the least of time(p) (1 + B / p) over halves of B.
Bytes best_part(const CostModel& cost, const Operation& probe, Bytes all);

}  // namespace weft
