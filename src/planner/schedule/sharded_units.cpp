#include "planner/schedule/sharded_units.hpp"

#include <algorithm>
#include <map>

namespace weft {
namespace {

// The embedding and the head both have layer -1, at the two ends of a block.
ShardedUnit& unit_of(std::vector<ShardedUnit>& units, std::int32_t layer) {
  if (units.empty() || units.back().layer != layer) units.push_back({layer, {}, {}});
  return units.back();
}

}  // namespace

bool is_sharded_traffic(const Operation& op) {
  return op.communication && op.per_micro_batch && (op.role == Role::param_gather || op.role == Role::grad_reduce);
}

ShardedUnits find_sharded_units(const StepGraph& graph, const IssueBlock& block, const OpLists& writers,
                                const OpLists& readers) {
  std::vector<bool> here(graph.operations.size(), false);
  for (const OpId id : block.operations) here[id.index()] = true;
  ShardedUnits units;
  for (const OpId id : block.operations) {
    const Operation& op = graph.op(id);
    if (!is_sharded_traffic(op)) continue;
    ShardedUnit& unit = unit_of(op.role == Role::param_gather ? units.gathers : units.reductions, op.layer);
    unit.transfers.push_back(id);
    const auto add = [&](OpId user) {
      // What a later leg reads, a transfer of the unit itself wrote.
      if (here[user.index()] && !is_sharded_traffic(graph.op(user))) unit.users.push_back(user);
    };
    if (op.role == Role::param_gather) {
      for (const Write& write : op.writes) std::ranges::for_each(readers[write.value.index()], add);
    } else {
      for (const Read& read : op.reads) std::ranges::for_each(writers[read.value.index()], add);
    }
  }
  return units;
}

std::vector<OpId> with_sharded_units(const std::vector<OpId>& operations, const ShardedUnits& units) {
  if (units.gathers.empty() && units.reductions.empty()) return operations;
  std::map<OpId, std::size_t> position;
  for (std::size_t i = 0; i < operations.size(); ++i) position[operations[i]] = i;
  std::vector<std::vector<OpId>> before(operations.size() + 1), behind(operations.size() + 1);
  std::size_t place = operations.size();
  for (auto unit = units.gathers.rbegin(); unit != units.gathers.rend(); ++unit) {
    for (const OpId user : unit->users) place = std::min(place, position.at(user));
    before[place].insert(before[place].begin(), unit->transfers.begin(), unit->transfers.end());
  }
  place = 0;
  for (const ShardedUnit& unit : units.reductions) {
    for (const OpId user : unit.users) place = std::max(place, position.at(user));
    behind[place].insert(behind[place].end(), unit.transfers.begin(), unit.transfers.end());
  }
  std::vector<OpId> result;
  for (std::size_t i = 0; i <= operations.size(); ++i) {
    result.insert(result.end(), before[i].begin(), before[i].end());
    if (i < operations.size()) result.push_back(operations[i]);
    result.insert(result.end(), behind[i].begin(), behind[i].end());
  }
  return result;
}

}  // namespace weft
