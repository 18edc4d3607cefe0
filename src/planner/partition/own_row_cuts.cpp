#include "planner/partition/own_row_cuts.hpp"

#include <algorithm>

#include "graph/operation_part.hpp"
#include "graph/own_rows.hpp"
#include "planner/partition/row_choice.hpp"

namespace weft {

LayerCuts own_row_cuts(const StepGraph& graph) {
  LayerCuts cuts = no_cuts(graph);
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    const Operation& op = graph.operations[i];
    if (!gathered_operand(op) || !may_be_cut_into(graph, op, 2, kOwnFirstAxis)) continue;
    cuts.parts[i] = 2;
    cuts.axes[i] = kOwnFirstAxis;
  }
  return cuts;
}

bool may_be_exchanged(const StepGraph& graph, const GatheredPair& pair, std::int64_t pieces) {
  const bool gather = pieces == 1 || may_be_cut_into(graph, graph.op(pair.gather), pieces);
  return gather && !pair.products.empty() && std::all_of(pair.products.begin(), pair.products.end(), [&](OpId id) {
           return may_be_cut_into(graph, graph.op(id), pieces + 1, kOwnFirstAxis);
         });
}

double exchanged_seconds(const StepGraph& graph, const CostModel& cost, const GatheredPair& pair, std::int64_t pieces) {
  const Operation& gather = graph.op(pair.gather);
  const double arrives = seconds(cost.alone(pieces == 1 ? gather : one_of(gather, static_cast<std::int32_t>(pieces))));
  const auto multiplied = [&](std::int64_t piece) {
    double sum = 0;
    for (const OpId id : pair.products) {
      Operation part = graph.op(id);
      part.key.dims[0] = part_size(graph, graph.op(id), {id, kOwnFirstAxis, piece, piece + 1, pieces + 1});
      sum += seconds(cost.alone(part));
    }
    return sum;
  };
  const double each = multiplied(1);
  double now = multiplied(0);
  for (std::int64_t piece = 1; piece <= pieces; ++piece) {
    now = std::max(now, static_cast<double>(piece) * arrives) + each;
  }
  return now;
}

void cut_for_exchange(const GatheredPair& pair, std::int64_t pieces, LayerCuts& cuts) {
  cuts.parts[pair.gather.index()] = static_cast<std::int32_t>(pieces);
  for (const OpId id : pair.products) {
    cuts.parts[id.index()] = static_cast<std::int32_t>(pieces) + 1;
    cuts.axes[id.index()] = kOwnFirstAxis;
  }
}

}  // namespace weft
