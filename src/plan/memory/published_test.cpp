// Configurations that papers report to have run on A100 with 80 GB, and one that they report not to fit.
#include <gtest/gtest.h>

#include <ostream>

#include "cluster/presets.hpp"
#include "planner/policy/policy.hpp"

namespace weft {
namespace {

struct Published {
  const char* name;
  std::int64_t layers, hidden, heads, gpus, tp, pp, vpp, micro_batch, global_batch;
  Recompute recompute;
  bool sequence_parallel, fits;
  friend std::ostream& operator<<(std::ostream& out, const Published& p) { return out << p.name; }
};

constexpr Published kPublished[] = {
    // Narayanan et al. 2021, table 1.
    {"gpt_1_7b", 24, 2304, 24, 32, 1, 1, 1, 16, 512, Recompute::full, false, true},
    {"gpt_3_6b", 30, 3072, 32, 64, 2, 1, 1, 16, 512, Recompute::full, false, true},
    {"gpt_18b", 40, 6144, 48, 256, 8, 1, 1, 8, 1024, Recompute::full, false, true},
    {"gpt_39b", 48, 8192, 64, 512, 8, 2, 1, 4, 1536, Recompute::full, false, true},
    {"gpt_310b", 96, 16384, 128, 1920, 8, 16, 2, 1, 2160, Recompute::full, false, true},
    // Korthikanti et al. 2022, table 5; its figure 1: 175B keeps too much without recomputation.
    {"gpt_22b", 48, 6144, 64, 8, 8, 1, 1, 4, 4, Recompute::selective, true, true},
    {"gpt_175b_full", 96, 12288, 96, 64, 8, 8, 3, 1, 64, Recompute::full, false, true},
    {"gpt_175b_selective", 96, 12288, 96, 64, 8, 8, 3, 1, 64, Recompute::selective, true, true},
    {"gpt_175b_none", 96, 12288, 96, 64, 8, 8, 3, 1, 64, Recompute::none, false, false},
};

class PublishedConfiguration : public ::testing::TestWithParam<Published> {};

TEST_P(PublishedConfiguration, FitsWhereItRan) {
  const Published& p = GetParam();
  Transformer model;
  model.name = p.name;
  model.layers = p.layers;
  model.hidden = p.hidden;
  model.heads = model.kv_heads = p.heads;
  model.head_dim = p.hidden / p.heads;
  model.ffn = 4 * p.hidden;
  model.vocab = 51200;
  model.max_seq = 2048;
  Layout layout{.tp = p.tp, .pp = p.pp};
  layout.vpp = p.vpp;
  layout.dp = p.gpus / (p.tp * p.pp);
  layout.micro_batch = p.micro_batch;
  layout.global_batch = p.global_batch;
  layout.seq = 2048;
  layout.sequence_parallel = p.sequence_parallel;
  layout.recompute = p.recompute;
  layout.attention = AttentionKernel::unfused;
  layout.precision = ElementType::fp16;
  if (p.vpp > 1) layout.schedule = PipelineSchedule::interleaved;
  const ClusterSpec spec = parse_cluster("dgx-a100:" + std::to_string(p.gpus / 8));
  const StepGraph graph = build_step_graph(model, Cluster(spec), layout);
  const Plan plan = make_plan({model, spec, layout, default_profile()}, graph, "serial");
  bool fits = true;
  for (const ClassPlan& c : plan.classes) fits = fits && c.memory <= spec.device.memory;
  EXPECT_EQ(fits, p.fits) << "stage 0 needs " << (plan.classes[0].memory.value >> 30) << " GiB";
}

INSTANTIATE_TEST_SUITE_P(Papers, PublishedConfiguration, ::testing::ValuesIn(kPublished),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace weft
