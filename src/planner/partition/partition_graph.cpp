#include "planner/partition/partition_graph.hpp"

#include <set>
#include <tuple>

#include "graph/operation_part.hpp"
#include "graph/substitute.hpp"
#include "planner/partition/cut.hpp"

namespace weft {
namespace {

// Layers with experts: what else is cut by rows waits for the whole of what these do.
bool is_of_experts(const Operation& op) {
  return op.role == Role::router || op.role == Role::gate || works_on_slots(op);
}

// Where experts of a layer are cut by capacity, nothing that works on their slots is cut by tokens.
void keep_axes_apart(const StepGraph& graph, LayerCuts& cuts) {
  std::set<std::tuple<ClassId, std::int32_t, Phase>> by_capacity;
  for (const bool look : {true, false}) {
    for (std::size_t i = 0; i < cuts.parts.size(); ++i) {
      const Operation& op = graph.operations[i];
      if (cuts.parts[i] == 1 || !works_on_slots(op)) continue;
      const std::tuple layer(op.rank_class, op.layer, op.phase);
      if (look && cuts.axes[i] == kCapacityAxis) by_capacity.insert(layer);
      if (!look && cuts.axes[i] == kTokenAxis && by_capacity.contains(layer)) cuts.parts[i] = 1;
    }
  }
}

// Returns by operation of the graph the parts that the choice names, and the rows.
LayerCuts all_cuts(const StepGraph& graph, const PartitionChoice& choice, bool rows_of_experts) {
  const bool rows = choice.forward_rows > 1 || choice.backward_rows > 1;
  if (!rows && choice.layers.parts.empty()) return {choice.parts, {}};
  LayerCuts cuts = no_cuts(graph);
  if (!choice.parts.empty()) cuts.parts = choice.parts;
  for (std::size_t i = 0; i < cuts.parts.size(); ++i) {
    const Operation& op = graph.operations[i];
    if (!op.per_micro_batch || !may_be_cut(graph, op) || (is_of_experts(op) && !rows_of_experts)) continue;
    cuts.parts[i] = op.phase == Phase::forward ? choice.forward_rows : choice.backward_rows;
  }
  if (choice.layers.parts.empty()) return cuts;
  cuts = merge_cuts(cuts, choice.layers);
  keep_axes_apart(graph, cuts);
  return cuts;
}

}  // namespace

StepGraph partition_graph(const StepGraph& graph, const PartitionChoice& choice, bool rows_of_experts) {
  const LayerCuts cuts = all_cuts(graph, choice, rows_of_experts);
  const auto merged_and_cut = [](const StepGraph& whole, const std::vector<MergeSet>& sets,
                                 const std::vector<std::int32_t>& parts, const std::vector<std::int32_t>& axes) {
    StepGraph merged = merge_operations(whole, sets);
    return parts.empty() ? merged : cut_operations(merged, whole, parts, axes);
  };
  if (choice.substitutions.empty()) return merged_and_cut(graph, choice.buckets, cuts.parts, cuts.axes);
  const SubstitutedGraph substituted(graph, choice.substitutions);
  const auto by_leg = [&](const std::vector<std::int32_t>& whole) {
    return whole.empty() ? whole : substituted.by_leg(whole);
  };
  StepGraph result = merged_and_cut(substituted.graph(), merge_sets_of_legs(substituted, choice.buckets),
                                    by_leg(cuts.parts), by_leg(cuts.axes));
  substituted.name_origins(result);
  return result;
}

}  // namespace weft
