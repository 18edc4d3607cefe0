#include "planner/partition/units.hpp"

#include <map>
#include <utility>

namespace weft {

std::vector<MergeSet> one_bucket_per_layer(const StepGraph& graph) {
  std::vector<MergeSet> sets;
  for (MergeSet& set : one_bucket(graph)) {
    const Operation& first = graph.op(set.members.front());
    if (first.per_micro_batch || !first.is_transfer()) {
      sets.push_back(std::move(set));
      continue;
    }
    std::map<std::pair<std::int32_t, bool>, MergeSet> by_layer;  // layer; for those without, whether it is the head
    for (const OpId id : set.members) {
      const Operation& op = graph.op(id);
      const bool head = op.layer < 0 && (op.subject == Role::head || op.subject == Role::final_norm);
      by_layer[{op.layer, head}].members.push_back(id);
    }
    for (auto& [layer, part] : by_layer) {
      if (part.members.size() > 1) sets.push_back({std::move(part.members), set.at_last});
    }
  }
  return sets;
}

}  // namespace weft
