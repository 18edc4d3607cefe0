#include "planner/partition/cut.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "graph/operation_part.hpp"
#include "graph/verify_graph.hpp"
#include "planner/partition/merge.hpp"
#include "planner/test_plans.hpp"

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
      // Tokens on their way to experts: as many as there are, not as there are slots for.
      for (const auto& [origin, sum] : bytes) {
        const Operation& source = whole.op(OpId{origin});
        const bool cut_by_tokens = works_on_slots(source) && may_be_cut_into(whole, source, 2);
        const Bytes expected =
            cut_by_tokens ? with_balanced_load(whole, source).communication->bytes : source.communication->bytes;
        EXPECT_EQ(sum, expected) << describe(source);
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

// Of E elements in four growing parts: an eighth, an eighth, a quarter, a half.
TEST(Cut, MakesPartsThatGrow) {
  for (const int zero : {0, 1}) {
    const StepGraph whole = test::build(test::request(test::small_gpt(1), parse_cluster("local:2"), {.zero = zero}));
    const StepGraph graph = cut_all(whole, -4);
    EXPECT_NO_THROW(verify_graph(graph));
    std::map<OpId, std::vector<double>> parts;
    for (const Operation& op : graph.operations) {
      EXPECT_FALSE(op.per_micro_batch && is_part(op)) << describe(op);
      if (is_part(op))
        parts[op.origins.front().operation].push_back(static_cast<double>(op.communication->bytes.value));
    }
    EXPECT_GT(parts.size(), 4u);
    for (const auto& [origin, bytes] : parts) {
      ASSERT_EQ(bytes.size(), 4u);
      const double all = static_cast<double>(whole.op(origin).communication->bytes.value);
      EXPECT_EQ(bytes[0] + bytes[1] + bytes[2] + bytes[3], all);
      const double rounding = 4 * 2 / all;  // an element of four bytes on each of two ranks
      EXPECT_NEAR(bytes[0] / all, 0.125, rounding);
      EXPECT_NEAR(bytes[1] / all, 0.125, rounding);
      EXPECT_NEAR(bytes[3] / all, 0.5, rounding);
    }
  }
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

// Two layers and the head, forward and back: all that is done row by row is cut, sums over rows and what they read are
// not, attention only where parts are whole sequences, and the loss only over a vocabulary that ranks do not share.
TEST(Cut, CutsWhatIsDoneRowByRow) {
  for (const auto& [tp, sequences] : {std::pair{2, 1}, {2, 4}, {1, 4}}) {
    PlanRequest r = test::request(test::small_gpt(2), parse_cluster("local:2"),
                                  {.tp = tp, .micro_batch = sequences, .sequence_parallel = tp > 1});
    const StepGraph whole = test::build(r);
    const StepGraph graph = cut_all(whole, 4);
    for (const Operation& op : graph.operations) {
      if (!op.per_micro_batch) continue;
      const bool of_embedding =
          op.role == Role::embedding || op.role == Role::embedding_reduce || op.role == Role::embedding_dropout;
      const bool of_shared_vocabulary = tp > 1 && (op.role == Role::loss_reduce || op.role == Role::loss);
      const bool of_sequences = op.role == Role::attention && sequences == 1;
      const bool rows = op.phase != Phase::weight_grad && !of_embedding && !of_sequences &&
                        !(of_shared_vocabulary && op.phase == Phase::forward);
      EXPECT_EQ(is_part(op), rows) << describe(op);
      if (is_part(op)) {
        EXPECT_EQ(4 * op.key.dims[0], whole.op(op.origins.front().operation).key.dims[0]) << describe(op);
      }
    }
  }
}

class CutExperts : public ::testing::Test {
 protected:
  // 4 sequences of 32 tokens, two experts each: 256 copies in 8 x 40 slots; two experts on a rank of four.
  PlanRequest request_ = test::request(test::small_moe(2), parse_cluster("local:4"), {.ep = 4, .micro_batch = 4});
  StepGraph whole_ = test::build(request_);

  StepGraph cut(std::int32_t parts, std::int32_t axis) const {
    return cut_operations(merge_operations(whole_, {}), whole_,
                          std::vector<std::int32_t>(whole_.operations.size(), parts),
                          std::vector<std::int32_t>(whole_.operations.size(), axis));
  }
  static std::vector<const Operation*> of(const StepGraph& graph, Role role, Phase phase) {
    std::vector<const Operation*> found;
    for (const Operation& op : graph.operations) {
      if (op.role == role && op.phase == phase) found.push_back(&op);
    }
    return found;
  }
};

// By capacity: 10 slots of every expert in each of 4 parts, from 4 ranks; what is around stays whole.
TEST_F(CutExperts, ByCapacityTakesThePaddedSlots) {
  const StepGraph graph = cut(4, kCapacityAxis);
  EXPECT_NO_THROW(verify_graph(graph));
  for (const Phase phase : {Phase::forward, Phase::input_grad}) {
    for (const Operation* op : of(graph, Role::expert_dispatch, phase)) {
      EXPECT_EQ(op->origins.front().of, 4);
      EXPECT_EQ(op->communication->bytes.value, 8 * 10 * 64 * 2);
    }
    for (const Operation* op : of(graph, Role::expert_in, phase)) EXPECT_EQ(op->key.dims[0], 4 * 10);
    for (const Role role : {Role::router, Role::gate, Role::dispatch, Role::combine, Role::ffn_norm}) {
      EXPECT_EQ(of(graph, role, phase).size(), role == Role::ffn_norm ? 2U : 1U) << name_of(role);
    }
  }
}

// By tokens: the 64 copies of one of 4 sequences, spread evenly over 8 experts, two on each of 4 ranks.
TEST_F(CutExperts, ByTokensTakesTheCopiesOfItsTokens) {
  const StepGraph graph = cut(4, kTokenAxis);
  EXPECT_NO_THROW(verify_graph(graph));
  for (const Phase phase : {Phase::forward, Phase::input_grad}) {
    for (const Role role : {Role::router, Role::gate, Role::dispatch, Role::expert_in, Role::expert_combine}) {
      EXPECT_EQ(of(graph, role, phase).size(), 4U) << name_of(role);
    }
    for (const Operation* op : of(graph, Role::expert_dispatch, phase)) {
      EXPECT_EQ(op->communication->bytes.value, 64 * 64 * 2);
    }
    for (const Operation* op : of(graph, Role::expert_in, phase)) EXPECT_EQ(op->key.dims[0], 4 * 64 / 8);
  }
}

// Part i of the gate reads the loads that the parts before it left, and nobody's else; its gradient reads them all.
TEST_F(CutExperts, TheGateHandsItsLoadsOn) {
  const StepGraph graph = cut(4, kTokenAxis);
  const std::vector<const Operation*> parts = of(graph, Role::gate, Phase::forward);
  ASSERT_EQ(parts.size(), 4U);
  const ValueId load = write_of(*parts[0], Operand::loads);
  for (std::size_t i = 0; i < 4; ++i) {
    const bool reads = std::any_of(parts[i]->reads.begin(), parts[i]->reads.end(),
                                   [&](const Read& read) { return read.value == load; });
    EXPECT_EQ(reads, i > 0);
    for (std::size_t j = 0; j < 4; ++j) {
      const bool waits = reads && overlap(read_slice_of(graph, *parts[i], load), slice_of(graph, *parts[j], load));
      EXPECT_EQ(waits, j < i) << i << " " << j;
    }
  }
  for (const Operation* op : of(graph, Role::gate, Phase::input_grad)) {
    for (const Operation* part : parts) {
      EXPECT_TRUE(overlap(read_slice_of(graph, *op, load), slice_of(graph, *part, load)));
    }
  }
}

// First choices of all tokens come before any second choice: no part of the tokens knows its slots.
TEST_F(CutExperts, AGateThatDoesNotTakeTokensInOrderIsCutByCapacityOnly) {
  for (const GateOrder order : {GateOrder::gshard, GateOrder::probs}) {
    request_.model.experts->gate_order = order;
    whole_ = test::build(request_);
    for (const Operation& op : cut(4, kTokenAxis).operations) {
      if (op.role == Role::gate || works_on_slots(op)) {
        EXPECT_FALSE(is_part(op)) << describe(op);
      }
      if (op.role == Role::router && op.phase != Phase::weight_grad) {
        EXPECT_TRUE(is_part(op)) << describe(op);
      }
    }
    EXPECT_EQ(of(cut(4, kCapacityAxis), Role::expert_in, Phase::forward).size(), 4U);
  }
  request_.model.experts->gate_order = GateOrder::gshard;  // with one choice it is token order
  request_.model.experts->top_k = 1;
  whole_ = test::build(request_);
  EXPECT_EQ(of(cut(4, kTokenAxis), Role::gate, Phase::forward).size(), 4U);
}

}  // namespace
}  // namespace weft
