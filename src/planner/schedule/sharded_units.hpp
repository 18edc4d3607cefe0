// What ZeRO 2 and 3 move in every micro-batch, by unit: a layer; the embedding; the head.
#pragma once

#include <vector>

#include "graph/op_lists.hpp"
#include "plan/plan.hpp"

namespace weft {

// Its gradient reductions and parameter gathers.
bool is_sharded_traffic(const Operation& operation);

struct ShardedUnit {
  std::int32_t layer = -1;
  std::vector<OpId> transfers;  // in issue order
  std::vector<OpId> users;      // of the block: who reads what was gathered, or writes what is reduced
};
struct ShardedUnits {
  std::vector<ShardedUnit> gathers, reductions;  // in the block's order
};
ShardedUnits find_sharded_units(const StepGraph& graph, const IssueBlock& block, const OpLists& writers,
                                const OpLists& readers);

// The operations of a block, which name none of the units' transfers, with the transfers: gathers in front of the
// unit's first user, reductions behind its last, and units in their order.
std::vector<OpId> with_sharded_units(const std::vector<OpId>& operations, const ShardedUnits& units);

}  // namespace weft
