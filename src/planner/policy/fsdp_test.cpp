#include "planner/policy/fsdp.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
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
  return {parse_cluster("dgx-a100:2"), test::uneven_nics(), parse_cluster("local:16,nic=200Mb/s")};
}

class AcceptsFsdp : public ::testing::TestWithParam<int> {};

// ZeRO 0 to 3 with every layout; prefetch depths, clusters and the other switches take their turns.
TEST_P(AcceptsFsdp, InEveryLayoutAtEveryZeroStage) {
  const std::vector<Transformer> models{test::small_gpt(), test::small_llama(), test::small_moe(), test::small_mla()};
  const Transformer& model = models[static_cast<std::size_t>(GetParam())];
  int turn = GetParam(), with_waits = 0;
  test::Sample sample;
  for (const auto& [name, base] : test::layouts()) {
    if (base.ep > 1 && !model.experts) continue;
    for (int zero = 0; zero <= 3; ++zero, ++turn) {
      if (!sample.takes()) continue;
      Layout layout = base;
      layout.zero = zero;
      layout.recompute = static_cast<Recompute>(turn % 3);
      if (turn % 6 == 2) layout.recompute_layers = {1};
      layout.clip_grad = turn / 2 % 2 == 0 ? 1 : 0;
      layout.precision = turn % 5 == 0 ? ElementType::fp32 : ElementType::bf16;
      const ClusterSpec cluster = clusters()[turn / 4 % 3];
      const int prefetch = turn / 4 % 4;
      SCOPED_TRACE(fmt::format("{}, {}, zero {}, {}, prefetch {}", model.name, name, zero, cluster.name, prefetch));
      const Plan plan = test::fsdp(test::request(model, cluster, layout,
                                                 layout.pp == 1  ? 2
                                                 : layout.pp > 4 ? 3
                                                                 : 4),
                                   prefetch);
      ASSERT_EQ(verdict(plan), "safe");
      EXPECT_EQ(plan.waits.empty(), zero < 2 || plan.layout.dp * plan.layout.cp == 1);
      if (!plan.waits.empty()) ++with_waits;
      if (zero >= 2 && turn % 3 == 0) {
        EXPECT_EQ(test::find_damage(plan, 1, 1).value_or("safe"), "safe");
      }
    }
  }
  EXPECT_GT(with_waits, test::rounds(20));
}

INSTANTIATE_TEST_SUITE_P(Models, AcceptsFsdp, ::testing::Range(0, 4));

const Plan& plan_at(int zero) {
  static const std::vector<Plan> plans = [] {
    std::vector<Plan> all;
    for (int z = 0; z <= 3; ++z) all.push_back(test::fsdp(test::small_llama(4), "local:2", {.zero = z}, 3));
    return all;
  }();
  return plans[zero];
}

std::vector<OpId> of_role(const Plan& plan, Role role, std::optional<Phase> phase = {}) {
  std::vector<OpId> found;
  for (const IssueBlock& block : plan.classes[0].blocks) {
    for (const OpId id : block.operations) {
      const Operation& op = plan.graph.op(id);
      if (op.role == role && (!phase || op.phase == *phase)) found.push_back(id);
    }
  }
  return found;
}

std::vector<std::int32_t> layers(const Plan& plan, const std::vector<OpId>& list) {
  std::vector<std::int32_t> result;
  for (const OpId id : list) result.push_back(plan.graph.op(id).layer);
  return result;
}

// Embedding, four layers, head; backward the other way round, where the head is still there and the embedding needs no
// weights. The embedding alone is waited for on the spot.
TEST(Fsdp, GathersEveryLayerOnceForwardAndOnceBackwardInOrderOfUse) {
  const Plan& plan = plan_at(3);
  EXPECT_EQ(layers(plan, of_role(plan, Role::param_gather, Phase::forward)),
            (std::vector<std::int32_t>{-1, 0, 1, 2, 3, -1}));
  EXPECT_EQ(layers(plan, of_role(plan, Role::param_gather, Phase::input_grad)),
            (std::vector<std::int32_t>{3, 2, 1, 0}));
  EXPECT_EQ(layers(plan, of_role(plan, Role::grad_reduce)), (std::vector<std::int32_t>{-1, 3, 2, 1, 0, -1}));
  for (const Phase phase : {Phase::forward, Phase::input_grad}) {
    const std::vector<OpId> gathers = of_role(plan, Role::param_gather, phase);
    for (const OpId id : gathers) {
      EXPECT_EQ(plan.issues[id.index()].blocking, phase == Phase::forward && id == gathers.front());
    }
  }
  for (const OpId id : of_role(plan, Role::grad_reduce)) EXPECT_FALSE(plan.issues[id.index()].blocking);
}

TEST(Fsdp, GathersAUnitOnceTheOneBeforeThePreviousIsRead) {
  const Plan& plan = plan_at(3);
  std::map<OpId, std::vector<Wait>> waits;
  for (const Wait& wait : plan.waits) waits[wait.operation].push_back(wait);
  const auto gathers = of_role(plan, Role::param_gather, Phase::forward);
  const auto until = [&](std::size_t unit) {
    const std::vector<Wait>& list = waits[gathers[unit]];
    EXPECT_EQ(list.size(), 1u);
    EXPECT_EQ(list.at(0).executions, 0);
    return describe(plan.graph.op(list.at(0).until));
  };
  EXPECT_TRUE(waits[gathers[0]].empty());
  EXPECT_EQ(waits[gathers[1]].at(0).until, gathers[0]);
  EXPECT_EQ(until(2), "embedding forward");
  EXPECT_EQ(until(3), "layer 0 ffn_out forward");
  EXPECT_EQ(until(5), "layer 2 ffn_out forward");
}

// In backward the head, which forward left whole, is the unit before the first that is gathered.
TEST(Fsdp, GathersTheLastLayerBesideTheBackwardOfTheHead) {
  const Plan& plan = plan_at(3);
  std::map<OpId, std::vector<std::string>> waits;
  for (const Wait& wait : plan.waits) waits[wait.operation].push_back(describe(plan.graph.op(wait.until)));
  const auto gathers = of_role(plan, Role::param_gather, Phase::input_grad);
  ASSERT_EQ(gathers.size(), 4u);
  EXPECT_EQ(waits[gathers[0]], std::vector<std::string>{"loss input_grad"});
  EXPECT_EQ(waits[gathers[1]], std::vector<std::string>{"final_norm input_grad"});
  EXPECT_EQ(waits[gathers[2]], std::vector<std::string>{"layer 3 attention_norm input_grad"});
}

TEST(Fsdp, WritesGradientsOnceTheUnitBeforeThePreviousIsReduced) {
  const Plan& plan = plan_at(3);
  const auto reductions = of_role(plan, Role::grad_reduce);
  std::set<std::tuple<std::string, OpId, int>> found;
  for (const Wait& wait : plan.waits) {
    if (plan.graph.op(wait.until).role != Role::grad_reduce) continue;
    found.insert({describe(plan.graph.op(wait.operation)), wait.until, wait.executions});
  }
  // Six units in two buffers: the first two wait for the last two of the previous execution.
  const std::set<std::tuple<std::string, OpId, int>> expected{{"head weight_grad", reductions[4], 1},
                                                              {"layer 3 ffn_out weight_grad", reductions[5], 1},
                                                              {"layer 2 ffn_out weight_grad", reductions[0], 0},
                                                              {"layer 1 ffn_out weight_grad", reductions[1], 0},
                                                              {"layer 0 ffn_out weight_grad", reductions[2], 0},
                                                              {"embedding weight_grad", reductions[3], 0}};
  EXPECT_EQ(found, expected);
}

TEST(Fsdp, BelowZero3OverlapsWhatThereIs) {
  for (int zero = 0; zero <= 2; ++zero) {
    SCOPED_TRACE(zero);
    const Plan& plan = plan_at(zero);
    const auto reductions = of_role(plan, Role::grad_reduce), gathers = of_role(plan, Role::param_gather);
    EXPECT_EQ(layers(plan, reductions), (std::vector<std::int32_t>{-1, 3, 2, 1, 0, -1}));
    EXPECT_EQ(layers(plan, gathers),
              zero == 0 ? std::vector<std::int32_t>{} : (std::vector<std::int32_t>{-1, 0, 1, 2, 3, -1}));
    for (const auto& list : {reductions, gathers}) {
      for (const OpId id : list) EXPECT_FALSE(plan.issues[id.index()].blocking) << describe(plan.graph.op(id));
    }
    EXPECT_EQ(plan.graph.op(reductions.front()).per_micro_batch, zero == 2);
  }
}

TEST(Fsdp, RefusesANegativePrefetch) {
  PlanRequest request = test::request(test::small_gpt(2), parse_cluster("local:2"), {.zero = 3});
  EXPECT_THROW(test::fsdp(request, -1), Error);
}

}  // namespace
}  // namespace weft
