// Stages get the layers with which a step is shortest, and fewer where only that fits.
#include "study/plan/stage_layers_choice.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "cluster/presets.hpp"
#include "cost/profile.hpp"
#include "model/presets.hpp"
#include "study/plan/plan_study.hpp"

namespace weft {
namespace {

// 128,000 words behind small layers: the head takes as long as several of them.
Inputs llama_in_stages() {
  Inputs inputs;
  inputs.model = model_preset("llama3-8b");
  inputs.cluster = parse_cluster("dgx-h100:1");
  inputs.layout.tp = 2;
  inputs.layout.pp = 4;
  inputs.layout.global_batch = 16;
  inputs.layout.seq = 2048;
  inputs.layout.zero = 1;
  return inputs;
}

double step_with(Inputs inputs, const std::vector<std::int64_t>& layers) {
  inputs.layout.stage_layers = layers;
  return study_plan(inputs, {"priority"}, default_profile()).policies.front().step_s;
}

TEST(StageLayersChoice, NoNeighbourIsFaster) {
  const Inputs inputs = llama_in_stages();
  const StageLayersChoice choice = choose_stage_layers(inputs, default_profile(), "priority");
  const StageLayersOption& best = choice.options[choice.chosen];
  EXPECT_LT(best.step_s, 0.95 * choice.options.front().step_s) << stage_layers_line(choice);
  EXPECT_EQ(best.step_s, step_with(inputs, best.layers));
  for (std::size_t from = 0; from < best.layers.size(); ++from) {
    for (std::size_t to = 0; to < best.layers.size(); ++to) {
      if (from == to) continue;
      std::vector<std::int64_t> other = best.layers;
      --other[from];
      ++other[to];
      EXPECT_GE(step_with(inputs, other), best.step_s * 0.99) << from << " to " << to;
    }
  }
}

TEST(StageLayersChoice, TakesWhatFits) {
  Inputs inputs = llama_in_stages();
  const StageLayersChoice roomy = choose_stage_layers(inputs, default_profile(), "priority");
  Bytes least = roomy.options.front().memory;
  for (const StageLayersOption& option : roomy.options) least = std::min(least, option.memory);
  ASSERT_LT(least, roomy.options[roomy.chosen].memory) << stage_layers_line(roomy);
  inputs.cluster.device.memory = least;
  const StageLayersChoice tight = choose_stage_layers(inputs, default_profile(), "priority");
  EXPECT_TRUE(tight.options[tight.chosen].fits) << stage_layers_line(tight);
  EXPECT_LE(tight.options[tight.chosen].memory, inputs.cluster.device.memory);
}

// What a search for devices found, say.
TEST(StageLayersChoice, IsNoSlowerThanTheLayersOfTheLayout) {
  Inputs inputs = llama_in_stages();
  const StageLayersChoice free = choose_stage_layers(inputs, default_profile(), "priority");
  inputs.layout.stage_layers = {10, 9, 8, 5};
  const StageLayersChoice from_given = choose_stage_layers(inputs, default_profile(), "priority");
  const double given_s = step_with(inputs, inputs.layout.stage_layers);
  EXPECT_EQ(from_given.options.front().layers, free.options.front().layers);
  EXPECT_LE(from_given.options[from_given.chosen].step_s, given_s);
}

TEST(StageLayersChoice, RefusesWhatHasNoStages) {
  Inputs inputs = llama_in_stages();
  inputs.layout.pp = 1;
  inputs.layout.dp = 4;
  EXPECT_THROW(choose_stage_layers(inputs, default_profile(), "priority"), Error);
}

}  // namespace
}  // namespace weft
