// ZeRO in two levels: who shares shards, how many bytes travel in which group, and what a rank holds.
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "graph/memory_bound.hpp"
#include "graph/test_graphs.hpp"
#include "graph/verify_graph.hpp"

namespace weft {
namespace {

using test::build;
using test::with_layers;

std::vector<std::int32_t> group_on(const Layout& layout, GroupKind kind, std::int32_t rank) {
  std::vector<std::int32_t> members;
  for (const Rank member : group_members(layout, {}, kind, {rank})) members.push_back(member.value);
  return members;
}

using Ranks = std::vector<std::int32_t>;

TEST(ShardGroups, AreNeighboursInTheGroupThatHoldsTheSameParameters) {
  // Ranks are tp + 2 (cp + 2 (dp + 4 pp)). Rank 5 has tp 1, cp 0, dp 1: of 1 3 5 7 9 11 13 15 it is the third.
  const Layout layout{.tp = 2, .cp = 2, .dp = 4, .pp = 2, .zero = 1, .zero_shards = 4};
  EXPECT_EQ(group_on(layout, GroupKind::dp, 5), (Ranks{1, 3, 5, 7, 9, 11, 13, 15}));
  EXPECT_EQ(group_on(layout, GroupKind::shard, 5), (Ranks{1, 3, 5, 7}));
  EXPECT_EQ(group_on(layout, GroupKind::replica, 5), (Ranks{5, 13}));
  EXPECT_EQ(group_on(layout, GroupKind::shard, 31), (Ranks{25, 27, 29, 31}));
  EXPECT_EQ(group_on(layout, GroupKind::replica, 31), (Ranks{23, 31}));
  // Of both stages, the ranks of the first four of eight.
  EXPECT_EQ(group_on(layout, GroupKind::norm, 5), (Ranks{0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23}));
}

TEST(ShardGroups, OfOneRankOrOfAllAreTheEndsOfTheScale) {
  Layout layout{.dp = 4, .zero = 1, .zero_shards = 1};
  EXPECT_EQ(group_on(layout, GroupKind::shard, 2), (Ranks{2}));
  EXPECT_EQ(group_on(layout, GroupKind::replica, 2), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(group_on(layout, GroupKind::norm, 2), (Ranks{2}));
  layout.zero_shards = 4;
  EXPECT_EQ(group_on(layout, GroupKind::shard, 2), Ranks{}) << "there is no other set of shards";
  EXPECT_EQ(group_on(layout, GroupKind::norm, 2), (Ranks{0, 1, 2, 3}));
}

// Every part of the model is once in the group that sums the norm: a stage's share for a tensor-parallel rank, in
// shards.
TEST(ShardGroups, CountEveryShardOnceInTheNorm) {
  for (const std::vector<Axis>& order : {std::vector{Axis::tp, Axis::cp, Axis::dp, Axis::pp},
                                         {Axis::dp, Axis::tp, Axis::pp, Axis::cp},
                                         {Axis::cp, Axis::pp, Axis::dp, Axis::tp}}) {
    Layout layout{.tp = 2, .cp = 2, .dp = 6, .pp = 2, .zero = 1, .zero_shards = 3};
    layout.mesh_order = order;
    const Mesh mesh = dense_mesh(layout);
    for (std::int32_t rank = 0; rank < layout.devices(); ++rank) {
      std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> parts;
      const std::vector<Rank> members = group_members(layout, {}, GroupKind::norm, {rank});
      for (const Rank member : members) {
        const std::vector<Rank> shards = group_members(layout, {}, GroupKind::shard, member);
        ASSERT_EQ(shards.size(), 3U);
        const auto place = std::find(shards.begin(), shards.end(), member) - shards.begin();
        parts.insert({mesh.coordinate(Axis::pp, member), mesh.coordinate(Axis::tp, member), place});
      }
      EXPECT_EQ(members.size(), 2U * 2U * 3U);
      EXPECT_EQ(parts.size(), members.size());
    }
  }
}

struct Traffic {
  std::int64_t count = 0, bytes = 0;
};

Traffic traffic_of(const StepGraph& graph, Role role, Phase phase, Collective collective, GroupKind group) {
  Traffic traffic;
  for (const Operation& op : graph.operations) {
    if (op.role != role || op.phase != phase) continue;
    EXPECT_EQ(op.communication->collective, collective) << describe(op);
    EXPECT_EQ(op.communication->group, group) << describe(op);
    ++traffic.count;
    traffic.bytes += op.communication->bytes.value;
  }
  return traffic;
}

// 16 ranks, gradients in fp32, parameters in bf16. Every tensor of the model divides by 4.
constexpr std::int64_t kShards = 4;

TEST(ShardGroups, MoveTheGradientInsideAndItsShardsAcross) {
  const Transformer model = with_layers("llama2-7b", 4);
  const std::int64_t parameters = total_parameters(model);
  for (const int zero : {1, 2, 3}) {
    SCOPED_TRACE(zero);
    const StepGraph graph = build(model, "dgx-a100:2", {.zero = zero, .zero_shards = kShards});
    verify_graph(graph);
    const Phase reduced_in = zero == 1 ? Phase::optimizer : Phase::weight_grad;
    const Traffic inside =
        traffic_of(graph, Role::grad_reduce, reduced_in, Collective::reduce_scatter, GroupKind::shard);
    EXPECT_EQ(inside.bytes, 4 * parameters);
    const Traffic across =
        traffic_of(graph, Role::shard_reduce, Phase::optimizer, Collective::all_reduce, GroupKind::replica);
    EXPECT_EQ(across.count, inside.count);
    EXPECT_EQ(across.bytes, 4 * parameters / kShards);
    const Phase gathered_in = zero == 3 ? Phase::forward : Phase::optimizer;
    const Traffic gathered =
        traffic_of(graph, Role::param_gather, gathered_in, Collective::all_gather, GroupKind::shard);
    EXPECT_EQ(gathered.bytes, 2 * parameters);
    for (const Operation& op : graph.operations) {
      EXPECT_FALSE(op.communication && op.communication->group == GroupKind::dp) << describe(op);
      EXPECT_FALSE(op.role == Role::shard_reduce && op.per_micro_batch);
    }
    EXPECT_EQ(graph.classes.front().group(GroupKind::shard).view.size, kShards);
    EXPECT_EQ(graph.classes.front().group(GroupKind::replica).view.size, 16 / kShards);
  }
}

// The update reads what was summed over replicas.
TEST(ShardGroups, UpdateFromTheSumOverReplicas) {
  for (const int zero : {1, 2, 3}) {
    const StepGraph graph =
        build(with_layers("llama2-7b", 2), "dgx-a100:2", {.zero = zero, .zero_shards = kShards, .clip_grad = 1});
    const std::vector<std::vector<OpId>> writers = writers_of(graph);
    for (const Operation& op : graph.operations) {
      if (op.role != Role::update && op.role != Role::grad_norm) continue;
      for (const Read& read : op.reads) {
        if (read.operand != Operand::gradient) continue;
        EXPECT_EQ(graph.op(writers[read.value.index()].front()).role, Role::shard_reduce) << describe(op);
      }
    }
  }
}

// Rajbhandari et al. 2020, figure 1, with N shards instead of one for every data-parallel rank.
TEST(ShardGroups, DivideStateByTheShardsAlone) {
  const Transformer model = with_layers("llama2-7b", 4);
  const std::int64_t parameters = total_parameters(model);
  for (const int zero : {1, 2, 3}) {
    const Layout layout = test::filled({.zero = zero, .zero_shards = kShards}, 16);
    const std::int64_t weights = 2 * parameters / (zero == 3 ? kShards : 1);
    const std::int64_t gradients = 4 * parameters / (zero >= 2 ? kShards : 1);
    const std::int64_t optimizer = 12 * parameters / kShards;
    EXPECT_EQ(memory_lower_bound(model, layout).state.value, weights + gradients + optimizer) << zero;
    const StepGraph graph = build_step_graph(model, Cluster(parse_cluster("dgx-a100:2")), layout);
    std::int64_t moments = 0, accumulated = 0;
    for (const Value& value : graph.values) {
      if (value.kind == ValueKind::optimizer_state) moments += value.bytes().value;
      if (value.accumulated) accumulated += value.bytes().value;
    }
    EXPECT_EQ(moments, optimizer) << zero;
    EXPECT_EQ(accumulated, gradients) << zero;
  }
}

TEST(ShardGroups, OfTheWholeGroupAreNoGroups) {
  const Transformer model = with_layers("gpt2", 4);
  for (const int zero : {1, 2, 3}) {
    const Layout plain{.tp = 2, .pp = 2, .zero = zero, .clip_grad = 1};
    Layout named = plain;
    named.zero_shards = 4;
    const StepGraph expected = build(model, "dgx-a100:2", plain), found = build(model, "dgx-a100:2", named);
    EXPECT_EQ(found.operations, expected.operations);
    EXPECT_EQ(found.values, expected.values);
  }
}

}  // namespace
}  // namespace weft
