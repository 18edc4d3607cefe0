// What a part of a transfer touches and carries.
#include "graph/operation_part.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "graph/test_graphs.hpp"
#include "graph/verify_graph.hpp"

namespace weft {
namespace {

using test::build;
using test::with_layers;

// The first operation of that role which runs once a step.
OpId once_a_step(const StepGraph& graph, Role role, Role subject) {
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    const Operation& op = graph.operations[i];
    if (op.role == role && op.subject == subject && !op.per_micro_batch) return make_id<OpId>(i);
  }
  ADD_FAILURE() << "no such operation";
  return OpId{0};
}

// 10 elements in 4 parts: borders 0, 2.5, 5, 7.5, 10 rounded down.
TEST(TransferPart, TouchesTheElementsBetweenRoundedBorders) {
  const std::vector<ElementRange> expected{{0, 2}, {2, 5}, {5, 7}, {7, 10}};
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_EQ(part_range(10, {OpId{0}, 0, i, i + 1, 4}), expected[i]) << i;
  }
  EXPECT_EQ(part_range(10, {OpId{0}, 0, 1, 3, 4}), (ElementRange{2, 7}));
}

// gpt2's first norm has 2 * 768 elements; 8 ranks; gradients of 4 bytes, weights of 2. A part of an all_reduce is a
// range of the 1536 elements; one of a reduce_scatter or all_gather the same range of 8 shards of 192.
TEST(TransferPart, CarriesItsShareOfTheBytes) {
  const Transformer model = with_layers("gpt2", 1);
  const StepGraph zero0 = build(model, "dgx-a100:1", {.seq = 64}),
                  zero1 = build(model, "dgx-a100:1", {.seq = 64, .zero = 1});
  const Operation& reduce = zero0.op(once_a_step(zero0, Role::grad_reduce, Role::attention_norm));
  const Operation& scatter = zero1.op(once_a_step(zero1, Role::grad_reduce, Role::attention_norm));
  const Operation& gather = zero1.op(once_a_step(zero1, Role::param_gather, Role::attention_norm));
  ASSERT_EQ(reduce.communication->bytes.value, 4 * 1536);
  EXPECT_EQ(part_size(zero0, reduce, {OpId{0}, 0, 1, 2, 5}), 4 * (614 - 307));
  EXPECT_EQ(part_size(zero1, scatter, {OpId{0}, 0, 1, 2, 5}), 4 * 8 * (76 - 38));
  EXPECT_EQ(part_size(zero1, gather, {OpId{0}, 0, 4, 5, 5}), 2 * 8 * (192 - 153));
  for (const auto& [graph, op] : {std::pair{&zero0, &reduce}, {&zero1, &scatter}, {&zero1, &gather}}) {
    for (const std::int64_t of : {1, 2, 3, 7, 64, 191}) {
      Bytes sum;
      for (std::int64_t i = 0; i < of; ++i) sum += Bytes{part_size(*graph, *op, {OpId{0}, 0, i, i + 1, of})};
      EXPECT_EQ(sum, op->communication->bytes) << of;
    }
  }
}

TEST(TransferPart, IsOfGradientReductionsAndParameterGathersOfAStep) {
  const StepGraph graph = build(with_layers("gpt2", 1), "dgx-a100:1", {.tp = 2, .seq = 64, .zero = 3, .clip_grad = 1});
  for (const Operation& op : graph.operations) {
    if (op.role == Role::embedding || op.phase == Phase::weight_grad || op.role == Role::param_gather) {
      EXPECT_FALSE(may_be_cut(graph, op)) << describe(op);  // ZeRO-3: each micro-batch
    }
  }
  const StepGraph zero1 = build(with_layers("gpt2", 1), "dgx-a100:1", {.tp = 2, .seq = 64, .zero = 1, .clip_grad = 1});
  int may = 0;
  for (const Operation& op : zero1.operations) {
    if (op.per_micro_batch) continue;
    may += may_be_cut(zero1, op) ? 1 : 0;
    EXPECT_EQ(may_be_cut(zero1, op), op.role == Role::grad_reduce || op.role == Role::param_gather) << describe(op);
  }
  EXPECT_GT(may, 0);
}

class PartsInAGraph : public ::testing::Test {
 protected:
  StepGraph graph_ = build(with_layers("gpt2", 1), "dgx-a100:1", {.seq = 64, .zero = 1});
  std::size_t at_ = once_a_step(graph_, Role::grad_reduce, Role::qkv).index();

  void SetUp() override {
    const Operation whole = graph_.operations[at_];
    for (std::int32_t i = 2; i >= 0; --i) {
      Operation part = whole;
      part.part = i;
      part.origins = {{make_id<OpId>(at_), 0, i, i + 1, 3}};
      part.communication->bytes = {part_size(graph_, whole, part.origins.front())};
      part.key.dims[0] = part.communication->bytes.value;
      const auto place = graph_.operations.begin() + static_cast<std::ptrdiff_t>(at_);
      if (i == 2) {
        *place = part;
      } else {
        graph_.operations.insert(place, part);
      }
    }
  }
};

TEST_F(PartsInAGraph, WriteTheirValueTogether) {
  EXPECT_NO_THROW(verify_graph(graph_));
  EXPECT_EQ(describe(graph_.operations[at_ + 1]), "layer 0 qkv grad_reduce optimizer part 2 of 3");
}

TEST_F(PartsInAGraph, MustHaveTheirShareOfTheBytes) {
  Operation& op = graph_.operations[at_ + 1];
  op.communication->bytes.value += 4;
  op.key.dims[0] += 4;
  EXPECT_THROW(verify_graph(graph_), Error);
}

TEST_F(PartsInAGraph, ShareTheirValueWithNoOther) {
  graph_.operations[at_ + 1].origins.front().operation = OpId{0};
  EXPECT_THROW(verify_graph(graph_), Error);
}

// A host that enqueues ahead knows how many slots a part of the capacity has, not how many rows a part of the tokens
// has.
TEST(ExpertPart, IsOfTokensOnlyWhereAProcessorKnowsHowManyThereAre) {
  Transformer model = with_layers("gpt2", 1);
  model.experts = Experts{.count = 8, .top_k = 2, .ffn = 64, .capacity_factor = 1};
  const auto way_out_may_be_cut = [&](const std::string& cluster, std::int32_t axis) {
    const StepGraph graph = build(model, cluster, {.ep = 4, .seq = 64});
    const auto op = std::ranges::find(graph.operations, Role::expert_dispatch, &Operation::role);
    return may_be_cut_into(graph, *op, 2, axis);
  };
  EXPECT_TRUE(way_out_may_be_cut("local:4,nic=1Gb/s", kTokenAxis));
  EXPECT_TRUE(way_out_may_be_cut("local:4,nic=1Gb/s", kCapacityAxis));
  EXPECT_FALSE(way_out_may_be_cut("gpu:4", kTokenAxis));
  EXPECT_TRUE(way_out_may_be_cut("gpu:4", kCapacityAxis));
  EXPECT_TRUE(way_out_may_be_cut("dgx-a100:1,gpus=4", kTokenAxis));  // planned for, not run
}

}  // namespace
}  // namespace weft
