#include "graph/verify_graph.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "graph/test_graphs.hpp"

namespace weft {
namespace {

struct NamedLayout {
  std::string name;
  Layout layout;
};

// On 16 devices; dp is what remains.
std::vector<NamedLayout> layouts() {
  using enum PipelineSchedule;
  const std::vector<Axis> pp_inside{Axis::tp, Axis::pp, Axis::cp, Axis::dp};
  const std::vector<Axis> dp_inside{Axis::dp, Axis::tp, Axis::cp, Axis::pp};
  return {
      {"dp", {}},
      {"tp", {.tp = 4, .etp = 4}},
      {"tp over nodes", {.tp = 4, .etp = 4, .sequence_parallel = true, .mesh_order = dp_inside}},
      {"tp with sequence parallelism", {.tp = 2, .etp = 2, .sequence_parallel = true}},
      {"gpipe", {.pp = 4, .schedule = gpipe}},
      {"1f1b", {.pp = 4, .schedule = one_f_one_b}},
      {"interleaved", {.pp = 2, .vpp = 2, .schedule = interleaved}},
      {"uneven stages", {.pp = 4, .stage_layers = {1, 4, 2, 1}}},
      {"cp", {.cp = 4}},
      {"ep", {.ep = 4}},
      {"ep and etp without tp", {.ep = 2, .etp = 2}},
      {"ep and etp", {.tp = 2, .ep = 4, .etp = 2, .sequence_parallel = true}},
      {"etp 1 under tp", {.tp = 4, .ep = 8, .etp = 1, .sequence_parallel = true}},
      {"ep without sequence parallelism", {.tp = 2, .ep = 2, .etp = 2}},
      {"tp and pp", {.tp = 4, .pp = 2, .etp = 4, .mesh_order = pp_inside}},
      {"tp, cp and pp",
       {.tp = 2, .cp = 2, .pp = 2, .vpp = 2, .etp = 2, .sequence_parallel = true, .schedule = interleaved}},
      {"all", {.tp = 2, .cp = 2, .pp = 2, .ep = 2, .etp = 2, .sequence_parallel = true, .mesh_order = pp_inside}},
  };
}

class AcceptsEveryLayout : public ::testing::TestWithParam<const char*> {};

// ZeRO 0 to 3 with every layout; the other switches take their turns.
TEST_P(AcceptsEveryLayout, AtEveryZeroStage) {
  const Transformer model = test::with_layers(GetParam(), 8);
  int turn = 0, accepted = 0;
  for (const NamedLayout& named : layouts()) {
    const bool needs_experts = named.layout.ep > 1;
    if (needs_experts && !model.experts) continue;
    for (int zero = 0; zero <= 3; ++zero) {
      ++turn;
      Layout layout = named.layout;
      layout.zero = zero;
      layout.recompute = static_cast<Recompute>(turn % 3);
      if (turn % 6 == 2) layout.recompute_layers = {1};
      layout.attention = turn % 2 == 0 ? AttentionKernel::flash : AttentionKernel::unfused;
      layout.clip_grad = turn / 2 % 2 == 0 ? 1 : 0;
      layout.precision = turn % 5 == 0 ? ElementType::fp32 : ElementType::bf16;
      SCOPED_TRACE(
          fmt::format("{}, {}, zero {}, recompute {}", model.name, named.name, zero, name_of(layout.recompute)));
      ASSERT_NO_THROW(verify_graph(test::build(model, "dgx-a100:2", layout)));
      ++accepted;
    }
  }
  EXPECT_EQ(accepted, 4 * (model.experts ? 17 : 11));
}

INSTANTIATE_TEST_SUITE_P(Models, AcceptsEveryLayout,
                         ::testing::Values("gpt2", "llama2-7b", "llama2-70b", "megatron-1.7b", "mixtral-8x7b",
                                           "qwen3-30b-a3b", "deepseek-v3", "gpt2-s-moe"),
                         [](const auto& model) {
                           std::string name = model.param;
                           for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
                           return name;
                         });

TEST(VerifyGraph, AcceptsGroupsWhoseRanksCannotBeSwapped) {
  // Tensor-parallel groups of 6 over nodes of 4, a slow node, NICs that several GPUs share.
  Transformer model = test::with_layers("gpt2", 4);
  EXPECT_NO_THROW(verify_graph(test::build(model, "dgx-a100:3,gpus=4", {.tp = 6, .zero = 1, .clip_grad = 1})));
  EXPECT_NO_THROW(verify_graph(test::build(model, "p3dn:3,gpus=4", {.tp = 2, .pp = 2, .zero = 3, .clip_grad = 1})));
  ClusterSpec spec = parse_cluster("dgx-a100:4");
  spec.overrides.push_back({.node = 3, .level = "nic", .bandwidth = Bandwidth{1e9}, .latency = {}, .device = {}});
  const Cluster cluster(spec);
  for (const int zero : {0, 1, 2, 3}) {
    const Layout layout = test::filled({.tp = 4, .pp = 2, .zero = zero, .sequence_parallel = true}, 32);
    EXPECT_NO_THROW(verify_graph(build_step_graph(model, cluster, layout))) << zero;
  }
}

}  // namespace
}  // namespace weft
