// Chooses by modelled cost which operations of layers with experts are cut, into how many parts and along which axis.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/partition/pass_chain.hpp"

namespace weft {

// By operation of the graph.
struct LayerCuts {
  std::vector<std::int32_t> parts, axes;
  friend bool operator==(const LayerCuts&, const LayerCuts&) = default;
};
LayerCuts no_cuts(const StepGraph& graph);
// Returns the cuts of both; no operation may be cut by both.
LayerCuts merge_cuts(const LayerCuts& a, const LayerCuts& b);

// Tutel cuts all-to-alls and experts by capacity and leaves everything else whole.
LayerCuts expert_cuts(const StepGraph& graph, std::int32_t parts, bool forward);
// Returns the fastest number of such parts among 1, 2, 4 and 8.
std::int32_t best_expert_parts(const StepGraph& graph, const CostModel& cost, bool forward);

struct PassCuts {
  std::vector<ChainCut> cuts;  // by operation of the chain
  double ns = 0;               // of the pass
};
// Partitions operators as Lancet does: the pass falls into stretches, each cut into so many parts along one axis or not
// at all, such that the sum of their pipelined times is least: T(n) = min over i and the cut of T(i) + P(i, n, cut). A
// stretch allows a cut where all its operations do, so that axes spread from experts to their neighbours as far as
// these can follow: dense layers and norms along tokens, attention in whole sequences, a gate that does not take
// tokens in order not at all. No stretch is longer than `longest` operations.
PassCuts best_pass_cuts(const PassChain& chain, std::size_t longest = 64);
struct CutsFound {
  LayerCuts cuts;
  // Summed over the passes of all classes and chunks that have all-to-alls: as cut, whole, and the all-to-alls of
  // these.
  double ns = 0, whole_ns = 0, exchanges_ns = 0;
  // This much of the time of the all-to-alls nothing of the pass hides.
  double exposed() const;
};
CutsFound best_layer_cuts(const StepGraph& graph, const CostModel& cost, bool forward);

}  // namespace weft
