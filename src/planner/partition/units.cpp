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

namespace {

bool is_of_attention(Role role) {
  return role >= Role::attention_norm && role <= Role::attention_out;
}

}  // namespace

std::vector<MergeSet> buckets_within_layers(const StepGraph& graph, bool single) {
  std::vector<MergeSet> sets;
  for (MergeSet& set : one_bucket_per_layer(graph)) {
    const Operation& first = graph.op(set.members.front());
    if (!first.per_micro_batch || !first.is_transfer() || first.layer < 0) {
      sets.push_back(std::move(set));
      continue;
    }
    if (single) continue;
    MergeSet attention{{}, set.at_last}, rest{{}, set.at_last};
    for (const OpId id : set.members) {
      (is_of_attention(graph.op(id).subject) ? attention : rest).members.push_back(id);
    }
    for (MergeSet* part : {&attention, &rest}) {
      if (part->members.size() > 1) sets.push_back(std::move(*part));
    }
  }
  return sets;
}

}  // namespace weft
