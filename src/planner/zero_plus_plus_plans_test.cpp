// Encoded weights and gradients of ZeRO 2 and 3 under every policy: plans are safe, and exchanges run beside compute.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "plan/happens_before.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"
#include "planner/search/decisions.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

std::string safety_of(const Plan& plan) {
  const std::optional<Violation> found = verify_plan(plan, {.memory_limit = {}, .check_memory = false});
  return found ? found->message : "safe";
}

// On 16 devices.
std::vector<test::NamedLayout> encoded_layouts() {
  using enum CompressionFormat;
  const GradientCompression gradients{int4, 1000}, none_below{none, 1000};
  return {
      {"gradients at zero 2", {.zero = 2, .compress = gradients}},
      {"gradients at zero 3, clipped", {.zero = 3, .compress = gradients, .clip_grad = 1}},
      {"gradients in layer groups", {.zero = 3, .layer_group = 2, .compress = gradients}},
      {"gradients in shard groups", {.zero = 2, .zero_shards = 4, .compress = gradients}},
      {"gradients in a pipeline", {.pp = 4, .zero = 2, .compress = gradients}},
      {"weights", {.zero = 3, .compress = none_below, .compress_weights = int8}},
      {"weights, recomputed, in a pipeline",
       {.pp = 2, .zero = 3, .recompute = Recompute::full, .compress = none_below, .compress_weights = int8}},
      {"weights at zero 1, clipped", {.zero = 1, .compress = none_below, .compress_weights = int8, .clip_grad = 1}},
      {"all at zero 1", {.zero = 1, .compress = gradients, .compress_weights = int8}},
      {"all at zero 2", {.zero = 2, .compress = gradients, .compress_weights = int4}},
      {"weights at zero 1, in a pipeline, in shard groups",
       {.pp = 2, .zero = 1, .zero_shards = 4, .compress = none_below, .compress_weights = int8}},
      {"all", {.zero = 3, .zero_secondary = 8, .compress = gradients, .compress_weights = int8}},
      {"all, tp 2",
       {.tp = 2,
        .etp = 2,
        .zero = 3,
        .zero_secondary = 4,
        .sequence_parallel = true,
        .compress = gradients,
        .compress_weights = int8}},
      {"all, cp 2", {.cp = 2, .zero = 3, .zero_secondary = 4, .compress = gradients, .compress_weights = int8}},
  };
}

class ZeroPlusPlusPlans : public ::testing::TestWithParam<std::string> {};

TEST_P(ZeroPlusPlusPlans, AreSafeInEveryLayout) {
  const std::vector<ClusterSpec> clusters{parse_cluster("dgx-a100:2"), test::uneven_nics(),
                                          parse_cluster("local:16,nic=200Mb/s")};
  std::size_t turn = GetParam().size();
  for (const auto& [name, layout] : encoded_layouts()) {
    ++turn;
    SCOPED_TRACE(fmt::format("{}, {}", name, clusters[turn % 3].name));
    const PlanRequest r = test::request(turn % 2 == 0 ? test::small_gpt() : test::small_llama(), clusters[turn % 3],
                                        layout, layout.pp == 1 ? 2 : 4);
    const Plan plan = make_plan(r, test::build(r), GetParam());
    ASSERT_EQ(safety_of(plan), "safe");
    EXPECT_EQ(test::find_damage(plan, 1, 2).value_or("safe"), "safe");
  }
}

std::vector<std::string> policies_of_shards() {
  std::vector<std::string> names = policy_names();
  std::erase_if(names, [](const std::string& name) { return searches(name) || name == "lancet"; });
  return names;
}
INSTANTIATE_TEST_SUITE_P(Policies, ZeroPlusPlusPlans, ::testing::ValuesIn(policies_of_shards()), [](const auto& test) {
  std::string name = test.param;
  std::erase(name, '-');
  return name;
});

TEST(ZeroPlusPlusPlansOfTheSearch, AreSafeWhateverItDecides) {
  std::mt19937_64 random(5);
  int planned = 0;
  for (const auto& [name, layout] : encoded_layouts()) {
    const PlanRequest r = test::request(test::small_gpt(), parse_cluster("dgx-a100:2"), layout, 4);
    const SharedGraph graph = test::build(r);
    const DecisionSpace space(r, graph);
    for (int i = 0; i < 3; ++i) {
      Decisions decisions = space.start();
      for (std::size_t d = 0; i > 0 && d < DecisionSpace::kDimensions; ++d) {
        decisions.chosen[d] = random() % space.options(d);
      }
      const WholePlan made = overlapped_plan(r, graph, "weft", space.overlap(decisions));
      if (!find_run_order(made.unfolded()).cycle.empty()) continue;
      ++planned;
      SCOPED_TRACE(fmt::format("{}, decision {}", name, i));
      ASSERT_EQ(safety_of(made.plan()), "safe");
    }
  }
  EXPECT_GE(planned, 35);
}

// Forward does not wait for weights of later layers: what decodes them is on the queue beside compute, and stands
// behind the updates of the two parameters that forward needs next, which keep the link busy meanwhile.
TEST(ZeroPlusPlusPlansOfPriority, DecodeWeightsBesideCompute) {
  for (const int zero : {1, 2}) {
    const PlanRequest r = test::request(
        test::small_gpt(4), parse_cluster("local:4,nic=200Mb/s"),
        {.zero = zero, .compress = {CompressionFormat::none, 1000}, .compress_weights = CompressionFormat::int8}, 1);
    const StepGraph model = test::build(r);
    const Plan plan = make_plan(r, model, "priority");
    ASSERT_EQ(safety_of(plan), "safe");
    const std::int64_t parameters =
        std::ranges::count_if(model.operations, [](const Operation& op) { return op.role == Role::update; });
    std::vector<std::pair<std::int32_t, Role>> updated;
    std::size_t decoded = 0;
    for (const IssueBlock& block : plan.classes.front().blocks) {
      for (const OpId id : block.operations) {
        const Operation& op = plan.graph.op(id);
        if (op.role == Role::update) {
          for (const Origin& origin : op.origins) {
            const Operation& original = model.op(origin.operation);
            updated.emplace_back(original.layer, original.subject);
          }
        }
        if (op.role != Role::param_decode) continue;
        ++decoded;
        EXPECT_EQ(plan.classes.front().queues[plan.issues[id].queue].kind, QueueKind::extra);
        const auto own = std::ranges::find(updated, std::pair(op.layer, op.subject));
        ASSERT_NE(own, updated.end()) << describe(op);
        EXPECT_TRUE(updated.end() - own > 2 || std::ssize(updated) == parameters) << describe(op);
      }
    }
    EXPECT_GE(decoded, 4U * 4U);
  }
}

// Nothing of compute waits for an exchange but its own sum, which stands behind the next layer's encodings.
TEST(ZeroPlusPlusPlansOfFsdp, AddUpALayersGradientsBehindTheNextLayers) {
  const PlanRequest r = test::request(test::small_gpt(4), parse_cluster("dgx-a100:2"),
                                      {.zero = 3, .compress = {CompressionFormat::int4, 1000}}, 2);
  const Plan plan = make_plan(r, test::build(r), "fsdp");
  std::map<std::tuple<std::int32_t, std::int32_t, bool>, std::size_t> first, last;  // layer, hop, whether it adds up
  for (const IssueBlock& block : plan.classes.front().blocks) {
    for (std::size_t i = 0; i < block.operations.size(); ++i) {
      const Operation& op = plan.graph.op(block.operations[i]);
      if (op.role == Role::grad_exchange) {
        EXPECT_FALSE(plan.issues[block.operations[i].index()].blocking) << describe(op);
      }
      if (op.layer < 0 || (op.role != Role::grad_encode && op.role != Role::grad_merge)) continue;
      const std::tuple key{op.layer, op.part, op.role == Role::grad_merge};
      first.try_emplace(key, i);
      last[key] = i;
    }
  }
  for (const std::int32_t layer : {3, 2, 1}) {
    EXPECT_GT(first.at({layer, 0, true}), last.at({layer - 1, 0, false})) << layer;
    EXPECT_GT(first.at({layer, 1, true}), last.at({layer - 1, 1, false})) << layer;
  }
}

}  // namespace
}  // namespace weft
