// Orders of pipelines whose backward is split: the gradients of inputs go to the stage before at once, those of weights
// fill the time in which a stage would wait.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/pipeline_run.hpp"

namespace weft {

struct FillOptions {
  std::vector<std::int64_t> most_held;  // by stage: passes whose activations fit
  bool alternate = true;  // after a forward comes an input gradient and the other way round, where both are ready
  // Weight gradients are not begun where another pass will be ready within this share of their time.
  double patience = 0;
  // The order of forwards and backwards, perhaps in pairs; empty: what is ready goes first.
  PipelineOrders given = {};
};
// Runs what is ready: input gradients and forwards first, weight gradients where neither is. Returns nothing where the
// passes held leave a stage no room for what the others wait for.
std::optional<PipelineOrders> fill_with_weight_grads(const PipelineProblem& problem, const FillOptions& options);

// ZBV: two chunks a stage in waves, and no stage ever idle between its first pass and its last where all passes take
// one unit (Qi et al. 2024, Zero Bubble, section 6; the order of PyTorch's ScheduleZBVZeroBubble). No stage holds more
// than two passes for every stage.
PipelineOrders zero_bubble_waves(const PipelineShape& shape);

// A micro-batch's way through a pipeline with two chunks a stage in waves, as a pattern that repeats every six units:
// the time from one stage to the next in the first chunk's forward, the second's, the second's backward and the first's
// (Qi et al. 2024, Pipeline Parallelism with Controllable Memory, section 3). Where another pass of the pattern is in
// the way, a pass comes later.
struct WaveSteps {
  std::int64_t forward_down = 1, forward_up = 1, backward_down = 1, backward_up = 1;
};
// All passes take one unit. When a stage has begun its last forward, weight gradients wait for input gradients.
PipelineOrders repeat_in_waves(const PipelineShape& shape, const WaveSteps& steps);

}  // namespace weft
