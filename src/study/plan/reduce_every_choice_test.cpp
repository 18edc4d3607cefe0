// Gradients are reduced once a step where whole gradients fit, and in every micro-batch where only that fits.
#include "study/plan/reduce_every_choice.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cluster/presets.hpp"
#include "cost/profile.hpp"
#include "model/presets.hpp"
#include "study/plan/plan_study.hpp"

namespace weft {
namespace {

Inputs llama_on(const std::string& cluster, int zero) {
  Inputs inputs;
  inputs.model = model_preset("llama2-7b");
  inputs.model.layers = 3;
  inputs.cluster = parse_cluster(cluster);
  inputs.layout.dp = Cluster(inputs.cluster).device_count();
  inputs.layout.global_batch = 4 * inputs.layout.dp;
  inputs.layout.seq = 512;
  inputs.layout.zero = zero;
  return inputs;
}

TEST(ReduceEveryChoice, TakesWhatIsFasterAndFits) {
  Inputs inputs = llama_on("dgx-a100:2,nic=100Gb/s", 2);
  const ReduceEveryChoice roomy = choose_reduce_every(inputs, default_profile(), "fsdp");
  const ReduceEveryOption &once = roomy.options[0], &each = roomy.options[1];
  EXPECT_EQ(roomy.chosen, 0U);
  // Slow links decide: four reductions take about four times as long as one.
  EXPECT_GT(each.step_s, 2 * once.step_s);
  EXPECT_GT(once.memory, each.memory);
  inputs.cluster.device.memory = Bytes{(once.memory.value + each.memory.value) / 2};
  const ReduceEveryChoice tight = choose_reduce_every(inputs, default_profile(), "fsdp");
  EXPECT_EQ(tight.chosen, 1U) << reduce_every_line(tight);
  EXPECT_TRUE(tight.options[1].fits && !tight.options[0].fits);
}

// The last reduction of a step has all bytes and begins when the last micro-batch is done, however often gradients were
// reduced before.
TEST(ReduceEveryChoice, IsNeverFasterWithMoreReductions) {
  for (const char* const cluster : {"dgx-a100:1", "dgx-a100:2,nic=100Gb/s"}) {
    for (const int zero : {0, 1, 2, 3}) {
      for (const char* const policy : {"serial", "fsdp", "priority"}) {
        double fastest = 0;
        for (const std::int64_t every : {Layout::kWholeStep, std::int64_t{2}, std::int64_t{1}}) {
          Inputs inputs = llama_on(cluster, zero);
          inputs.layout.reduce_every = every;
          const PlanStudy study = study_plan(inputs, {policy}, default_profile());
          const double step_s = study.policies.front().step_s;
          SCOPED_TRACE(fmt::format("{}, zero {}, {}, every {}", cluster, zero, policy, every));
          EXPECT_GE(step_s, study.bound_s * (1 - 1e-9));
          EXPECT_GE(step_s, fastest * (1 - 1e-9));
          if (every == Layout::kWholeStep) fastest = step_s;
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
