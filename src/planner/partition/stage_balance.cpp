#include "planner/partition/stage_balance.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "graph/pipeline_run.hpp"
#include "graph/substitute.hpp"

namespace weft {
namespace {

// What a stage waits for in its passes: messages between stages and data parallelism's transfers run beside them.
bool is_of_pass(const Operation& op) {
  return op.per_micro_batch && (!op.is_transfer() || is_layer_traffic(op));
}

struct ChunkTime {
  std::int64_t of_layers = 0, fixed = 0;
};

}  // namespace

StageProblem stage_problem(const StepGraph& graph, const CostModel& cost, const Layout& layout) {
  const PipelineShape shape = shape_of(layout);
  const auto chunks = static_cast<std::size_t>(shape.all_chunks());
  IdVector<ClassId, std::vector<ChunkTime>> of_classes(graph.classes.size(), std::vector<ChunkTime>(chunks));
  std::vector<std::set<std::int32_t>> layers(chunks);
  for (const Operation& op : graph.operations) {
    if (!is_of_pass(op)) continue;
    const auto chunk = static_cast<std::size_t>(shape.number_of(graph.classes[op.rank_class].stage, op.chunk));
    ChunkTime& time = of_classes[op.rank_class][chunk];
    (op.layer >= 0 ? time.of_layers : time.fixed) += cost.alone(op).value;
    if (op.layer >= 0) layers[chunk].insert(op.layer);
  }
  StageProblem problem{0, {}, {}, {}};
  std::vector<std::int64_t> time_of_stage(chunks, 0), layers_of_stage(chunks, 0);  // there are at most as many stages
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
    ChunkTime slowest;
    for (const std::vector<ChunkTime>& of_class : of_classes) {
      slowest.of_layers = std::max(slowest.of_layers, of_class[chunk].of_layers);
      slowest.fixed = std::max(slowest.fixed, of_class[chunk].fixed);
    }
    const auto count = static_cast<std::int64_t>(layers[chunk].size());
    WEFT_CHECK(count > 0);
    problem.layers += count;
    problem.stage.push_back(shape.stage_of(static_cast<std::int64_t>(chunk)));
    problem.fixed.push_back(slowest.fixed);
    time_of_stage[static_cast<std::size_t>(problem.stage.back())] += slowest.of_layers;
    layers_of_stage[static_cast<std::size_t>(problem.stage.back())] += count;
  }
  for (const std::int64_t stage : problem.stage) {
    const auto s = static_cast<std::size_t>(stage);
    problem.layer.push_back(time_of_stage[s] / layers_of_stage[s]);
  }
  return problem;
}

// One layer after the other goes where the stage then takes least: no other distribution has a faster slowest stage.
std::vector<std::int64_t> balanced_layers(const StageProblem& problem) {
  const std::size_t chunks = problem.stage.size();
  WEFT_CHECK(problem.layers >= static_cast<std::int64_t>(chunks));
  std::vector<std::int64_t> layers(chunks, 1), stage_time(chunks, 0);  // there are at most as many stages
  const auto time = [&](std::size_t chunk) -> std::int64_t& {
    return stage_time[static_cast<std::size_t>(problem.stage[chunk])];
  };
  for (std::size_t chunk = 0; chunk < chunks; ++chunk) time(chunk) += problem.fixed[chunk] + problem.layer[chunk];
  for (auto left = problem.layers - static_cast<std::int64_t>(chunks); left > 0; --left) {
    std::size_t best = 0;
    const auto rank = [&](std::size_t chunk) {
      return std::tuple(time(chunk) + problem.layer[chunk], -problem.stage[chunk], layers[chunk]);
    };
    for (std::size_t chunk = 1; chunk < chunks; ++chunk) {
      if (rank(chunk) < rank(best)) best = chunk;
    }
    ++layers[best];
    time(best) += problem.layer[best];
  }
  return layers;
}

}  // namespace weft
