#include "plan/partition/cut.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "graph/operation_part.hpp"
#include "graph/verify_graph.hpp"
#include "plan/partition/merge.hpp"
#include "plan/test_plans.hpp"

namespace weft {
namespace {

// Every operation into `parts`, where it may be cut.
StepGraph cut_all(const StepGraph& whole, std::int32_t parts) {
  return cut_operations(merge_operations(whole, {}), whole, std::vector<std::int32_t>(whole.operations.size(), parts));
}

TEST(Cut, KeepsTheRulesOfGraphsInEveryLayout) {
  for (const auto& [name, base] : test::layouts()) {
    for (int zero = 0; zero <= 2; ++zero) {
      SCOPED_TRACE(fmt::format("{}, zero {}", name, zero));
      Layout layout = base;
      layout.zero = zero;
      const Transformer model = base.ep > 1 ? test::small_moe() : test::small_gpt();
      const StepGraph whole = test::build(test::request(model, test::uneven_nics(), layout));
      const StepGraph graph = cut_all(whole, 3);
      EXPECT_NO_THROW(verify_graph(graph));
      std::map<std::int32_t, Bytes> bytes;
      for (const Operation& op : graph.operations) {
        const Operation& origin = whole.op(op.origins.front().operation);
        const bool may = may_be_cut_into(whole, origin, 3) || may_be_cut_into(whole, origin, 2);
        EXPECT_EQ(is_part(op), may) << describe(op);
        if (op.communication) bytes[op.origins.front().operation.value] += op.communication->bytes;
      }
      for (const auto& [origin, sum] : bytes) {
        EXPECT_EQ(sum, whole.op(OpId{origin}).communication->bytes) << describe(whole.op(OpId{origin}));
      }
    }
  }
}

// Two classes share the transfers: parts pair up one with one, by number.
TEST(Cut, NumbersPartsAlikeInAllClasses) {
  const StepGraph whole = test::build(test::request(test::small_llama(2), test::uneven_nics(), {.zero = 1}));
  ASSERT_EQ(whole.classes.size(), 2u);
  const StepGraph graph = cut_all(whole, 4);
  std::map<std::int32_t, std::vector<const Operation*>> by_number;
  for (const Operation& op : graph.operations) {
    if (op.communication) by_number[op.communication->transfer].push_back(&op);
  }
  int parts = 0;
  for (const auto& [number, members] : by_number) {
    ASSERT_EQ(members.size(), 2u) << number;
    EXPECT_EQ(members[0]->origins.front().begin, members[1]->origins.front().begin);
    EXPECT_EQ(describe(*members[0]), describe(*members[1]));
    parts += is_part(*members[0]) ? 1 : 0;
  }
  EXPECT_GT(parts, 4);
}

TEST(Cut, LeavesBucketsAndTheUncutWhole) {
  const StepGraph whole = test::build(test::request(test::small_gpt(2), parse_cluster("local:2"), {}));
  const StepGraph merged = merge_operations(whole, one_bucket(whole));
  const std::vector<std::int32_t> four(whole.operations.size(), 4), one(whole.operations.size(), 1);
  for (const Operation& op : cut_operations(merged, whole, four).operations) {
    EXPECT_TRUE(op.per_micro_batch || !is_part(op)) << describe(op);
  }
  const StepGraph apart = merge_operations(whole, {});
  EXPECT_EQ(cut_operations(apart, whole, one).operations, apart.operations);
}

TEST(Cut, MakesNoMorePartsThanElements) {
  const StepGraph whole = test::build(test::request(test::small_gpt(1), parse_cluster("local:2"), {}));
  const StepGraph graph = cut_all(whole, 1'000'000);
  for (const Operation& op : graph.operations) {
    if (!is_part(op)) continue;
    EXPECT_GT(op.key.dims[0], 0) << describe(op);
    EXPECT_LE(op.origins.front().of, op.per_micro_batch ? kMaxRowCuts : kMaxCuts);
  }
}

// Two layers, forward and back: all that is done row by row is cut, sums over rows and what they read are not, and
// attention only where parts are whole sequences.
TEST(Cut, CutsWhatLayersDoRowByRow) {
  for (const std::int64_t sequences : {1, 4}) {
    PlanRequest r = test::request(test::small_gpt(2), parse_cluster("local:2"),
                                  {.tp = 2, .micro_batch = sequences, .sequence_parallel = true});
    const StepGraph whole = test::build(r);
    const StepGraph graph = cut_all(whole, 4);
    for (const Operation& op : graph.operations) {
      if (!op.per_micro_batch) continue;
      const bool rows =
          op.layer >= 0 && op.phase != Phase::weight_grad && !(op.role == Role::attention && sequences == 1);
      EXPECT_EQ(is_part(op), rows) << describe(op);
      if (is_part(op)) {
        EXPECT_EQ(4 * op.key.dims[0], whole.op(op.origins.front().operation).key.dims[0]) << describe(op);
      }
    }
  }
}

}  // namespace
}  // namespace weft
