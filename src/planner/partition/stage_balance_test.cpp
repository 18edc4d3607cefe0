// Layers of pipeline stages against every other distribution, and the times they are balanced by against the model's
// own shapes.
#include "planner/partition/stage_balance.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>

#include "cluster/presets.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

std::int64_t slowest_stage(const StageProblem& problem, const std::vector<std::int64_t>& layers) {
  std::vector<std::int64_t> time(layers.size(), 0);
  for (std::size_t c = 0; c < layers.size(); ++c) {
    time[static_cast<std::size_t>(problem.stage[c])] += problem.fixed[c] + layers[c] * problem.layer[c];
  }
  return *std::max_element(time.begin(), time.end());
}

// Of all ways to give every chunk at least one layer.
std::int64_t least_slowest_stage(const StageProblem& problem) {
  std::int64_t least = INT64_MAX;
  std::vector<std::int64_t> layers;
  const std::function<void(std::int64_t)> fill = [&](std::int64_t left) {
    const auto rest = static_cast<std::int64_t>(problem.stage.size() - layers.size());
    if (rest == 1) {
      layers.push_back(left);
      least = std::min(least, slowest_stage(problem, layers));
      layers.pop_back();
      return;
    }
    for (std::int64_t own = 1; own <= left - (rest - 1); ++own) {
      layers.push_back(own);
      fill(left - own);
      layers.pop_back();
    }
  };
  fill(problem.layers);
  return least;
}

TEST(StageBalance, NoDistributionHasAFasterSlowestStage) {
  std::mt19937 random(7);
  const auto draw = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  for (int round = 0; round < 300; ++round) {
    const std::int64_t stages = draw(2, 4), per_stage = draw(1, 2);
    const bool in_waves = draw(0, 1) == 1;
    StageProblem problem{draw(stages * per_stage, 12), {}, {}, {}};
    std::vector<std::int64_t> of_device;
    for (std::int64_t s = 0; s < stages; ++s) of_device.push_back(draw(5, 9));
    for (std::int64_t c = 0; c < stages * per_stage; ++c) {
      const std::int64_t stage = in_waves && c / stages == 1 ? stages - 1 - c % stages : c % stages;
      problem.stage.push_back(stage);
      problem.layer.push_back(of_device[static_cast<std::size_t>(stage)]);
      problem.fixed.push_back(draw(0, 1) == 1 ? draw(0, 30) : 0);
    }
    const std::vector<std::int64_t> layers = balanced_layers(problem);
    ASSERT_EQ(std::accumulate(layers.begin(), layers.end(), std::int64_t{0}), problem.layers);
    ASSERT_GE(*std::min_element(layers.begin(), layers.end()), 1);
    EXPECT_EQ(slowest_stage(problem, layers), least_slowest_stage(problem)) << "round " << round;
  }
}

TEST(StageBalance, EqualStagesGetEqualLayersAndTheRestGoesLast) {
  const StageProblem problem{10, {0, 1, 2, 3}, {5, 5, 5, 5}, {0, 0, 0, 0}};
  EXPECT_EQ(balanced_layers(problem), (std::vector<std::int64_t>{2, 2, 3, 3}));
}

// Its first layer is dense and takes less time than the others.
TEST(StageBalance, ChunksOfAStageStayAlikeWhereLayersDiffer) {
  const PlanRequest request =
      test::request(test::small_mla(24), parse_cluster("dgx-a100:1"),
                    {.pp = 4, .vpp = 2, .seq = 64, .schedule = PipelineSchedule::interleaved}, 8);
  const SharedGraph graph = test::build(request);
  const CostModel cost(*graph, Cluster(request.cluster), request.profile);
  const std::vector<std::int64_t> layers = balanced_layers(stage_problem(*graph, cost, request.layout));
  ASSERT_EQ(layers.size(), 8U);
  for (std::size_t stage = 0; stage < 4; ++stage) EXPECT_LE(std::abs(layers[stage] - layers[stage + 4]), 1) << stage;
}

// A head as wide as three layers' products takes as long as about three layers.
TEST(StageBalance, CountsTheHeadAsItsProductsAre) {
  Transformer model = test::small_llama(8);
  model.hidden = 2048;
  model.heads = model.kv_heads = 16;
  model.head_dim = 128;
  model.ffn = 8192;
  model.max_seq = 1024;
  const std::int64_t of_layer = 4 * model.hidden * model.hidden + 3 * model.hidden * model.ffn;
  model.vocab = 3 * of_layer / model.hidden;
  const PlanRequest request = test::request(model, parse_cluster("dgx-a100:1"), {.pp = 4, .seq = 1024}, 8);
  const SharedGraph graph = test::build(request);
  const CostModel cost(*graph, Cluster(request.cluster), request.profile);
  const StageProblem problem = stage_problem(*graph, cost, request.layout);
  EXPECT_EQ(problem.layers, 8);
  EXPECT_EQ(problem.stage, (std::vector<std::int64_t>{0, 1, 2, 3}));
  const double head = static_cast<double>(problem.fixed[3]) / static_cast<double>(problem.layer[3]);
  EXPECT_GT(head, 2);
  EXPECT_LT(head, 4.5);
  EXPECT_EQ(problem.fixed[1], 0);
  EXPECT_EQ(balanced_layers(problem).back(), 1);
}

}  // namespace
}  // namespace weft
