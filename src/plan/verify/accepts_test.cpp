// The verifier accepts what the serial policy makes, over a broad matrix of models, layouts and clusters, and a run
// with random timings agrees.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "base/test_effort.hpp"
#include "plan/memory/place.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

std::string verdict(const Plan& plan) {
  const std::optional<Violation> found = verify_plan(plan, {.memory_limit = {}, .check_memory = false});
  return found ? found->message : "safe";
}

std::vector<ClusterSpec> clusters() {
  return {parse_cluster("dgx-a100:2"), parse_cluster("p3dn:2"), test::uneven_nics(),
          parse_cluster("local:16,nic=200Mb/s")};
}

class AcceptsSerial : public ::testing::TestWithParam<int> {};

// ZeRO 0 to 3 with every layout; clusters and the other switches take their turns.
TEST_P(AcceptsSerial, InEveryLayoutAtEveryZeroStage) {
  const std::vector<Transformer> models{test::small_gpt(), test::small_llama(), test::small_moe(), test::small_mla()};
  const Transformer& model = models[static_cast<std::size_t>(GetParam())];
  int turn = GetParam(), accepted = 0;
  for (const auto& [name, base] : test::layouts()) {
    if (base.ep > 1 && !model.experts) continue;
    for (int zero = 0; zero <= 3; ++zero) {
      Layout layout = base;
      layout.zero = zero;
      layout.recompute = static_cast<Recompute>(turn % 3);
      if (turn % 6 == 2) layout.recompute_layers = {1};
      layout.attention = turn % 2 == 0 ? AttentionKernel::flash : AttentionKernel::unfused;
      layout.clip_grad = turn / 2 % 2 == 0 ? 1 : 0;
      layout.precision = turn % 5 == 0 ? ElementType::fp32 : ElementType::bf16;
      const ClusterSpec cluster = clusters()[turn / 3 % 4];
      SCOPED_TRACE(fmt::format("{}, {}, zero {}, {}", model.name, name, zero, cluster.name));
      const Plan plan = test::serial(test::request(model, cluster, layout, layout.pp == 1 ? 2 : layout.pp > 4 ? 3 : 4));
      ASSERT_EQ(verdict(plan), "safe");
      if (turn % 9 == 0) {
        EXPECT_EQ(test::find_damage(plan, 1, 1).value_or("safe"), "safe");
      }
      ++turn;
      ++accepted;
    }
  }
  EXPECT_EQ(accepted, 4 * (model.experts ? 22 : 16));
}

INSTANTIATE_TEST_SUITE_P(Models, AcceptsSerial, ::testing::Range(0, 4));

// Any transfer but a receive may run beside compute: placement then keeps as many copies as needed. (A receive that
// nothing on its rank holds back may bring the next step's first micro-batch while the last of this one is in use.)
TEST(Accepts, WhateverRunsBesideComputeOncePlacedForIt) {
  std::mt19937_64 random(7);
  for (const auto& [name, base] : test::layouts()) {
    Layout layout = base;
    layout.zero = static_cast<int>(random() % 4);
    layout.clip_grad = static_cast<double>(random() % 2);
    SCOPED_TRACE(fmt::format("{}, zero {}", name, layout.zero));
    Plan plan = test::serial(test::request(test::small_moe(), test::uneven_nics(), layout));
    for (std::size_t i = 0; i < plan.issues.size(); ++i) {
      const auto& transfer = plan.graph.operations[i].communication;
      if (!transfer || (transfer->collective == Collective::send_recv && !transfer->sends)) continue;
      if (random() % 2 == 0) plan.issues[i].blocking = false;
    }
    place_values(plan);
    ASSERT_EQ(verdict(plan), "safe");
    EXPECT_EQ(test::find_damage(plan, random(), test::rounds(2)).value_or("safe"), "safe");
  }
}

}  // namespace
}  // namespace weft
