// The first pass of the planner: the model's graph becomes the plan's. Transfers are merged into buckets, carried out
// in legs and cut into parts; layers are cut by rows.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/step_graph.hpp"
#include "planner/partition/layer_cuts.hpp"
#include "planner/partition/merge.hpp"

namespace weft {

struct PartitionChoice {
  std::vector<MergeSet> buckets;         // their order does not matter
  std::vector<std::int32_t> parts = {};  // by operation: into how many it is cut (partition/cut.hpp); empty: no cuts
  // By operation: the rule by which it is carried out in legs (graph/substitute.hpp); empty: none is. Legs are
  // merged and cut as their operation would be, and go to queues of their own.
  std::vector<TransferRule> substitutions = {};
  // Layers are cut by rows into so many parts, in forward and in backward.
  std::int32_t forward_rows = 1, backward_rows = 1;
  LayerCuts layers = {};  // cuts of single operations of layers, in place of these; empty: none
  friend bool operator==(const PartitionChoice&, const PartitionChoice&) = default;
};

// `rows_of_experts`: rows are cut in layers with experts too.
StepGraph partition_graph(const StepGraph& graph, const PartitionChoice& choice, bool rows_of_experts);

}  // namespace weft
