// The fewest layers of every stage are recomputed with which it fits: brute force over all of a small pipeline.
#include "study/plan/recompute_layers_choice.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "cluster/presets.hpp"
#include "cost/profile.hpp"
#include "model/presets.hpp"
#include "study/plan/plan_study.hpp"

namespace weft {
namespace {

Inputs small_pipeline(std::int64_t vpp) {
  Inputs inputs;
  inputs.model = model_preset("gpt2");
  inputs.model.layers = 8;
  inputs.model.vocab = 1024;  // or the head's logits outweigh all activations
  inputs.cluster = parse_cluster("dgx-a100:1");
  inputs.layout.tp = 4;
  inputs.layout.etp = 1;
  inputs.layout.pp = 2;
  inputs.layout.vpp = vpp;
  inputs.layout.micro_batch = 2;
  inputs.layout.global_batch = 16;
  inputs.layout.seq = 1024;
  inputs.layout.recompute = Recompute::full;
  if (vpp > 1) inputs.layout.schedule = PipelineSchedule::interleaved;
  return inputs;
}

// Of the fullest stage and, by stage, the bytes that it needs.
std::vector<std::int64_t> memory_with(Inputs inputs, const std::vector<std::int64_t>& layers) {
  inputs.layout.recompute_layers = layers;
  if (std::ranges::max(layers) == 0) {
    inputs.layout.recompute = Recompute::none;
    inputs.layout.recompute_layers.clear();
  }
  const PlanStudy study = study_plan(inputs, {"priority"}, default_profile());
  const Plan& plan = study.policies.front().plan();
  std::vector<std::int64_t> of_stages(static_cast<std::size_t>(inputs.layout.pp));
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    std::int64_t& most = of_stages[plan.graph.classes[c].stage];
    most = std::max(most, plan.classes[c].memory.value);
  }
  return of_stages;
}

void set_memory(Inputs& inputs, std::int64_t bytes) {
  inputs.cluster.device.memory = {bytes};
}

TEST(RecomputeLayersChoice, IsTheFewestOfAllNumbersWithoutChunks) {
  Inputs inputs = small_pipeline(1);
  const std::vector<std::int64_t> none = memory_with(inputs, {0, 0}), all = memory_with(inputs, {4, 4});
  ASSERT_GT(none[0], none[1]);  // the first stage holds two micro-batches
  ASSERT_GT(all[0], 0);
  for (const double share : {0.2, 0.5, 0.8, 0.97}) {
    const auto limit =
        static_cast<std::int64_t>(static_cast<double>(all[0]) + share * static_cast<double>(none[0] - all[0]));
    std::vector<std::int64_t> expected(2, -1);
    for (std::int64_t layers = 4; layers >= 0; --layers) {
      const std::vector<std::int64_t> memory = memory_with(inputs, {layers, layers});
      for (std::size_t stage = 0; stage < 2; ++stage) {
        if (memory[stage] <= limit) expected[stage] = layers;
      }
    }
    set_memory(inputs, limit);
    const RecomputeLayersChoice choice = choose_recompute_layers(inputs, default_profile(), "priority");
    EXPECT_EQ(choice.best().layers, expected) << share << ": " << recompute_layers_line(choice);
    EXPECT_TRUE(choice.best().fits);
    EXPECT_FALSE(choice.none.fits);
    EXPECT_LE(choice.none.step_s, choice.best().step_s);
    EXPECT_LT(choice.best().step_s, choice.options.back().step_s);
    EXPECT_EQ(with_chosen(choice, inputs.layout).recompute_layers, expected);
    set_memory(inputs, std::int64_t{80} << 30);
  }
}

// Earlier chunks first: of the sums of a stage's chunks the fewest.
TEST(RecomputeLayersChoice, FillsEarlierChunksFirst) {
  Inputs inputs = small_pipeline(2);
  const std::vector<std::int64_t> none = memory_with(inputs, {0, 0, 0, 0}), all = memory_with(inputs, {2, 2, 2, 2});
  const std::int64_t limit = (none[0] + 2 * all[0]) / 3;
  std::vector<std::int64_t> expected;
  for (std::int64_t layers = 4; layers >= 0; --layers) {
    const std::int64_t first = std::min<std::int64_t>(layers, 2);
    const std::vector<std::int64_t> chunks{first, first, layers - first, layers - first};
    const std::vector<std::int64_t> memory = memory_with(inputs, chunks);
    if (expected.empty()) expected = chunks;
    if (memory[0] <= limit) expected[0] = chunks[0], expected[2] = chunks[2];
    if (memory[1] <= limit) expected[1] = chunks[1], expected[3] = chunks[3];
  }
  set_memory(inputs, limit);
  const RecomputeLayersChoice choice = choose_recompute_layers(inputs, default_profile(), "priority");
  EXPECT_EQ(choice.best().layers, expected) << recompute_layers_line(choice);
}

TEST(RecomputeLayersChoice, RecomputesNothingThatFits) {
  const Inputs inputs = small_pipeline(1);
  const RecomputeLayersChoice choice = choose_recompute_layers(inputs, default_profile(), "priority");
  const Layout chosen = with_chosen(choice, inputs.layout);
  EXPECT_EQ(chosen.recompute, Recompute::none);
  EXPECT_TRUE(chosen.recompute_layers.empty());
  EXPECT_EQ(choice.best().step_s, choice.none.step_s);
}

TEST(RecomputeLayersChoice, TakesAllOfAStageThatDoesNotFitEvenSo) {
  Inputs inputs = small_pipeline(1);
  set_memory(inputs, 1 << 20);
  const RecomputeLayersChoice choice = choose_recompute_layers(inputs, default_profile(), "priority");
  EXPECT_FALSE(choice.best().fits);
  EXPECT_EQ(choice.best().layers, choice.options.back().layers);
  EXPECT_TRUE(with_chosen(choice, inputs.layout).recompute_layers.empty());
}

// A policy that searches may hide more where memory is left, so it judges.
TEST(RecomputeLayersChoice, IsTheFastestUnderThePolicyThatSearches) {
  Inputs inputs = small_pipeline(1);
  const std::vector<std::int64_t> none = memory_with(inputs, {0, 0}), all = memory_with(inputs, {4, 4});
  set_memory(inputs, (none[0] + all[0]) / 2);
  const RecomputeLayersChoice choice = choose_recompute_layers(inputs, default_profile(), "priority", "weft");
  EXPECT_EQ(choice.policy, "weft");
  ASSERT_GE(choice.options.size(), 2);
  EXPECT_TRUE(choice.best().fits);
  for (std::size_t i = 0; i < choice.options.size(); ++i) {
    const RecomputeLayersOption& option = choice.options[i];
    EXPECT_TRUE(!option.fits || choice.best().step_s <= option.step_s) << i;
    if (i == 0) continue;
    for (std::size_t stage = 0; stage < 2; ++stage) {
      EXPECT_GE(option.layers[stage], choice.options[i - 1].layers[stage]) << i;  // more of them leave more memory
    }
  }
}

TEST(RecomputeLayersChoice, IsNotForTwoDirections) {
  Inputs inputs = small_pipeline(2);
  inputs.layout.schedule = PipelineSchedule::dualpipe;
  EXPECT_THROW(choose_recompute_layers(inputs, default_profile(), "priority"), Error);
}

}  // namespace
}  // namespace weft
