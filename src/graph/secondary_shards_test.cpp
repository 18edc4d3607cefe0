// Secondary shards (hpZ of ZeRO++): who keeps parameters for backward, what travels in which group, what it costs in
// memory.
#include <gtest/gtest.h>

#include <map>

#include "graph/memory_bound.hpp"
#include "graph/test_graphs.hpp"
#include "graph/verify_graph.hpp"

namespace weft {
namespace {

using test::build;
using test::with_layers;

std::vector<std::int32_t> secondary_of(const Layout& layout, std::int32_t rank) {
  std::vector<std::int32_t> members;
  for (const Rank member : group_members(layout, {}, GroupKind::secondary, {rank})) members.push_back(member.value);
  return members;
}

using Ranks = std::vector<std::int32_t>;

TEST(SecondaryShards, AreKeptByNeighboursInTheGroupThatHoldsTheSameParameters) {
  // Ranks are tp + 2 (cp + 2 dp). Rank 5 has tp 1, cp 0, dp 1: of 1 3 5 7 9 11 13 15 it is the third.
  Layout layout{.tp = 2, .cp = 2, .dp = 4, .zero = 3, .zero_secondary = 2};
  EXPECT_EQ(secondary_of(layout, 5), (Ranks{5, 7}));
  EXPECT_EQ(secondary_of(layout, 15), (Ranks{13, 15}));
  layout.zero_secondary = 4;
  EXPECT_EQ(secondary_of(layout, 5), (Ranks{1, 3, 5, 7}));
  layout.zero_shards = 4;  // inside a set of shards
  layout.zero_secondary = 2;
  EXPECT_EQ(secondary_of(layout, 9), (Ranks{9, 11}));
  layout.zero_secondary = 0;
  EXPECT_EQ(secondary_of(layout, 9), Ranks{});
}

// What gathers of a phase carry, by group.
std::map<GroupKind, std::int64_t> gathered_in(const StepGraph& graph, Phase phase) {
  std::map<GroupKind, std::int64_t> bytes;
  for (const Operation& op : graph.operations) {
    if (op.role == Role::param_gather && op.phase == phase) {
      bytes[op.communication->group] += op.communication->bytes.value;
    }
  }
  return bytes;
}

std::int64_t parameters_of_a_layer(const char* name) {
  return total_parameters(with_layers(name, 4)) - total_parameters(with_layers(name, 3));
}

// 16 ranks on two nodes, parameters in bf16; every tensor of the model divides by 16.
TEST(SecondaryShards, LeaveNothingOfBackwardsGathersBetweenNodes) {
  const Transformer model = with_layers("llama2-7b", 4);
  const std::int64_t of_layers = 4 * parameters_of_a_layer("llama2-7b");
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    const StepGraph plain = build(model, "dgx-a100:2", {.zero = 3, .recompute = recompute});
    const StepGraph graph = build(model, "dgx-a100:2", {.zero = 3, .zero_secondary = 8, .recompute = recompute});
    verify_graph(graph);
    EXPECT_EQ(gathered_in(graph, Phase::forward), gathered_in(plain, Phase::forward));
    const std::map<GroupKind, std::int64_t> backward = gathered_in(graph, Phase::input_grad);
    EXPECT_EQ(backward, (std::map<GroupKind, std::int64_t>{{GroupKind::secondary, 2 * of_layers}}));
    EXPECT_EQ(gathered_in(plain, Phase::input_grad),
              (std::map<GroupKind, std::int64_t>{{GroupKind::dp, 2 * of_layers}}));
    const GroupView& view = graph.classes.front().group(GroupKind::secondary).view;
    EXPECT_EQ(view.size, 8);
    // All members are in the innermost domain that has several of them, so no message leaves the node.
    for (const std::int64_t within : view.within) EXPECT_TRUE(within == 8 || within == 1) << within;
    EXPECT_EQ(view.within.back(), 8);
  }
}

// ZeRO++, section 4.2: a secondary shard of M / N beside the primary one.
TEST(SecondaryShards, TakeAnNthOfTheLayersBetweenForwardAndBackward) {
  const Transformer model = with_layers("llama2-7b", 4);
  for (const std::int64_t n : {2, 4, 8}) {
    const MemoryBound plain = memory_lower_bound(model, test::filled({.zero = 3}, 16));
    const MemoryBound kept = memory_lower_bound(model, test::filled({.zero = 3, .zero_secondary = n}, 16));
    EXPECT_EQ(kept.state.value, plain.state.value);
    EXPECT_EQ(kept.activations.value - plain.activations.value, 2 * 4 * parameters_of_a_layer("llama2-7b") / n) << n;
  }
}

TEST(SecondaryShards, AreEachReadOnceByBackward) {
  for (const char* name : {"gpt2", "llama2-7b"}) {
    for (const std::int64_t group : {1, 2}) {
      const StepGraph graph = build(with_layers(name, 3), "dgx-a100:2",
                                    {.global_batch = 32, .zero = 3, .zero_secondary = 4, .layer_group = group});
      verify_graph(graph);
      std::map<ValueId, int> reads;
      for (const Operation& op : graph.operations) {
        if (op.role == Role::param_keep) reads.try_emplace(write_of(op, Operand::weight), 0);
      }
      for (const Operation& op : graph.operations) {
        for (const Read& read : op.reads) {
          if (reads.contains(read.value)) ++reads[read.value];
        }
      }
      EXPECT_FALSE(reads.empty());
      for (const auto& [value, count] : reads) EXPECT_EQ(count, 1) << graph.value(value).name;
    }
  }
}

}  // namespace
}  // namespace weft
