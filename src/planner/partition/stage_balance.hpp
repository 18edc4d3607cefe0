// Layers of the model chunks of a pipeline, so that no stage takes much longer than another: embedding and head make
// the first and the last chunk longer, by several layers where a vocabulary is large and layers are small.
#pragma once

#include <cstdint>
#include <vector>

#include "cost/cost_model.hpp"
#include "graph/layout.hpp"
#include "graph/step_graph.hpp"

namespace weft {

// By chunk, in the order of the model.
struct StageProblem {
  std::int64_t layers = 1;          // of the model
  std::vector<std::int64_t> stage;  // that has the chunk
  std::vector<std::int64_t> layer;  // what one more layer takes there
  std::vector<std::int64_t> fixed;  // what it takes beside its layers
};

// Of a graph with any layers in its chunks: what a micro-batch takes in each. Where layers differ, a stage's are taken
// for as long as they are in the mean.
StageProblem stage_problem(const StepGraph& graph, const CostModel& cost, const Layout& layout);

// Returns the layers of each chunk, at least one, with which the slowest stage takes least. Of stages that are as fast,
// later ones have more layers, because earlier ones hold more micro-batches; of a stage's chunks with equal layers none
// has two more than another of it.
std::vector<std::int64_t> balanced_layers(const StageProblem& problem);

}  // namespace weft
