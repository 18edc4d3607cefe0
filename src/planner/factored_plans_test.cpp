// Factors of low rank, and gradients that are encoded between nodes only, under every policy: plans are safe, and
// sums lie where backward left the gradients.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "plan/verify/verify_plan.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

class FactoredPlans : public ::testing::TestWithParam<std::string> {};

std::vector<test::NamedLayout> factored_layouts() {
  return {{"dp 16", {}},
          {"dp 16, zero 1, clipped", {.zero = 1, .clip_grad = 1}},
          {"tp 2", {.tp = 2, .etp = 2, .sequence_parallel = true}},
          {"cp 4, zero 1", {.cp = 4, .zero = 1}},
          {"pp 2, clipped", {.pp = 2, .clip_grad = 1}}};
}

void expect_safe_and_in_place(const PlanRequest& r, const std::string& policy) {
  const Plan plan = make_plan(r, test::build(r), policy);
  const std::optional<Violation> found = verify_plan(plan, {.memory_limit = {}, .check_memory = false});
  ASSERT_FALSE(found) << found->message;
  int sums = 0;
  for (const Operation& op : plan.graph.operations) {
    const bool is_product = op.key.kind == OpKind::low_rank && op.role == Role::grad_decode;
    if (!is_product && op.role != Role::node_reduce) continue;
    const Operand gradient = is_product ? Operand::gradient : Operand::payload;
    EXPECT_EQ(address(plan, write_of(op, gradient), kOncePerStep), address(plan, read_of(op, gradient), kOncePerStep));
    ++sums;
  }
  EXPECT_GT(sums, 0);
}

TEST_P(FactoredPlans, AreSafeInEveryLayout) {
  for (const auto& [name, base] : factored_layouts()) {
    for (const char* const cluster : {"dgx-a100:2", "local:16,nic=200Mb/s"}) {
      SCOPED_TRACE(fmt::format("{} on {}", name, cluster));
      Layout layout = base;
      layout.compress = {CompressionFormat::power_sgd, 1000, 2};
      expect_safe_and_in_place(
          test::request(test::small_gpt(3), parse_cluster(cluster), layout, layout.pp == 1 ? 1 : 4), GetParam());
    }
  }
}

TEST_P(FactoredPlans, AreSafeInTwoLevels) {
  for (const auto& [name, base] : factored_layouts()) {
    for (const std::int64_t nodes : {2, 4}) {
      if (base.pp == nodes) continue;  // every stage is a node
      SCOPED_TRACE(fmt::format("{} on {} nodes", name, nodes));
      Layout layout = base;
      layout.compress = {.format = CompressionFormat::int8, .min_elements = 1000, .between_nodes = true};
      expect_safe_and_in_place(test::request(test::small_llama(3), parse_cluster(fmt::format("dgx-a100:{}", nodes)),
                                             layout, layout.pp == 1 ? 1 : 4),
                               GetParam());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, FactoredPlans,
                         ::testing::Values("serial", "ddp", "megatron-param", "centauri", "priority"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace weft
