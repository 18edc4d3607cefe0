// Of the two placements of model chunks the one is taken whose plan fits and has the shorter step.
#include "study/plan/chunk_placement_choice.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cluster/presets.hpp"
#include "cost/profile.hpp"
#include "model/presets.hpp"
#include "study/plan/plan_study.hpp"

namespace weft {
namespace {

struct PipelineCase {
  std::int64_t tp = 1, pp = 2, micro_batches = 4;
  std::string cluster = "dgx-a100:1";
};

Inputs pipeline(const PipelineCase& c) {
  Inputs inputs;
  inputs.model = model_preset("gpt2");
  inputs.model.layers = 8;
  inputs.cluster = parse_cluster(c.cluster);
  inputs.layout.tp = inputs.layout.etp = c.tp;
  inputs.layout.pp = c.pp;
  inputs.layout.vpp = 2;
  inputs.layout.dp = Cluster(inputs.cluster).device_count() / (c.tp * c.pp);
  inputs.layout.global_batch = c.micro_batches * inputs.layout.dp;
  inputs.layout.seq = 1024;
  inputs.layout.schedule = PipelineSchedule::searched_waves;
  inputs.budget_s = 0.1;
  return inputs;
}

PlanOutcome planned(Inputs inputs, PipelineSchedule schedule) {
  inputs.layout.schedule = schedule;
  const PlanStudy study = study_plan(inputs, {"weft"}, default_profile());
  const PolicyStudy& only = study.policies.front();
  return {only.step_s, only.memory_peak, only.fits};
}

TEST(ChunkPlacementChoice, IsTheShorterOfBothAndNeverLongerThanInterleaved) {
  for (const PipelineCase& c : {PipelineCase{},
                                {.pp = 4, .micro_batches = 8},
                                {.tp = 2, .micro_batches = 8},
                                {.pp = 4, .micro_batches = 8, .cluster = "dgx-a100:4,nic=25Gb/s"}}) {
    const Inputs inputs = pipeline(c);
    const ChunkPlacementChoice choice = choose_chunk_placement(inputs, default_profile(), "weft");
    SCOPED_TRACE(fmt::format("tp {}, pp {}, {}: {}", c.tp, c.pp, c.cluster, chunk_placement_line(choice)));
    const double waves = planned(inputs, PipelineSchedule::searched_waves).step_s;
    const double loops = planned(inputs, PipelineSchedule::searched_loops).step_s;
    EXPECT_EQ(choice.best().schedule,
              loops < waves ? PipelineSchedule::searched_loops : PipelineSchedule::searched_waves);
    EXPECT_EQ(choice.best().step_s, std::min(waves, loops));
    EXPECT_LE(choice.best().step_s, planned(inputs, PipelineSchedule::interleaved).step_s);
  }
}

// The embedding and the head are on one stage in waves, and on two in loops: with a large vocabulary and little memory
// only one of the placements may fit.
TEST(ChunkPlacementChoice, TakesThePlacementThatFits) {
  Inputs inputs = pipeline({});
  const Bytes waves = planned(inputs, PipelineSchedule::v_min).memory;
  const Bytes loops = planned(inputs, PipelineSchedule::interleaved).memory;
  ASSERT_NE(waves, loops);
  inputs.cluster.device.memory = Bytes{(waves.value + loops.value) / 2};
  const ChunkPlacementChoice choice = choose_chunk_placement(inputs, default_profile(), "weft");
  EXPECT_TRUE(choice.best().fits) << chunk_placement_line(choice);
  EXPECT_FALSE(choice.options[1 - choice.chosen].fits) << chunk_placement_line(choice);
}

}  // namespace
}  // namespace weft
