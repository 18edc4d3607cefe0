#include "graph/substitute.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "graph/verify_graph.hpp"
#include "planner/partition/cut.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

const std::vector<Substitution> kInLevels{Substitution::all_reduce_in_levels, Substitution::reduce_scatter_in_levels,
                                          Substitution::all_gather_in_levels};
const std::vector<Substitution> kInHalves{Substitution::all_reduce_in_halves};

StepGraph graph_of(const Layout& layout, const ClusterSpec& cluster) {
  return test::build(test::request(layout.ep > 1 ? test::small_moe() : test::small_gpt(), cluster, layout));
}

TEST(Substitute, KeepsTheRulesOfGraphsInEveryLayout) {
  int staged = 0;
  for (const auto& [name, base] : test::layouts()) {
    for (int zero = 0; zero <= 3; ++zero) {
      for (const ClusterSpec& cluster : {parse_cluster("dgx-a100:2"), parse_cluster("p4de:2"), test::uneven_nics()}) {
        for (const std::vector<Substitution>& wanted : {kInLevels, kInHalves}) {
          SCOPED_TRACE(fmt::format("{}, zero {}, {}, {}", name, zero, cluster.name, name_of(wanted.front())));
          Layout layout = base;
          layout.zero = zero;
          const StepGraph whole = graph_of(layout, cluster);
          const SubstitutedGraph substituted(whole, first_possible(whole, wanted));
          EXPECT_NO_THROW(verify_graph(substituted.graph()));
          const StepGraph merged =
              merge_operations(substituted.graph(), merge_sets_of_legs(substituted, one_bucket(whole)));
          EXPECT_NO_THROW(
              verify_graph(cut_operations(merge_operations(substituted.graph(), {}), substituted.graph(),
                                          std::vector<std::int32_t>(substituted.graph().operations.size(), 3))));
          for (const Operation& op : merged.operations) staged += op.rule != Substitution::none ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(staged, 200);
}

// 16 ranks on 2 nodes of 8, no tensor parallelism: N = 16, inner 8, outer 2.
TEST(Substitute, WritesTheStagesOfAnAllReduceInLevels) {
  const StepGraph whole = graph_of({}, parse_cluster("dgx-a100:2"));
  const SubstitutedGraph substituted(whole, first_possible(whole, kInLevels));
  const StepGraph& graph = substituted.graph();
  const OpId origin = test::find_op(whole, "stage 0", "layer 0 qkv grad_reduce optimizer");
  const Operation& source = whole.op(origin);
  const std::int64_t elements = 64 * 192 + 192, slice = elements / 8;  // weight and bias of h 64 to 3 h
  ASSERT_EQ(source.communication->bytes.value, 4 * elements);
  const Operation& scatter = graph.op(substituted.leg_of(origin, 0));
  const Operation& reduce = graph.op(substituted.leg_of(origin, 1));
  const Operation& gather = graph.op(substituted.leg_of(origin, 2));
  EXPECT_EQ(scatter.communication->collective, Collective::reduce_scatter);
  EXPECT_EQ(scatter.communication->scope, Scope::inner);
  EXPECT_EQ(scatter.communication->bytes.value, 4 * elements);
  EXPECT_EQ(reduce.communication->collective, Collective::all_reduce);
  EXPECT_EQ(reduce.communication->scope, Scope::outer);
  EXPECT_EQ(reduce.communication->bytes.value, 4 * slice);
  EXPECT_EQ(gather.communication->collective, Collective::all_gather);
  EXPECT_EQ(gather.communication->scope, Scope::inner);
  EXPECT_EQ(gather.communication->bytes.value, 4 * elements);
  EXPECT_EQ(scatter.reads, source.reads);
  EXPECT_EQ(gather.writes, source.writes);
  EXPECT_EQ(reduce.reads.front().value, scatter.writes.front().value);
  EXPECT_EQ(gather.reads.front().value, reduce.writes.front().value);
  EXPECT_EQ(graph.value(scatter.writes.front().value).elements(), slice);
  EXPECT_EQ(graph.value(reduce.writes.front().value).elements(), slice);
  // What lies between comes behind the values of the model.
  EXPECT_GE(scatter.writes.front().value.index(), whole.values.size());
  EXPECT_TRUE(std::equal(whole.values.begin(), whole.values.end(), graph.values.begin()));
  EXPECT_EQ(describe(reduce), "layer 0 qkv grad_reduce optimizer all_reduce outer");
}

TEST(Substitute, LevelsOfAShardAreTheShardsOfItsPlaceInEveryNode) {
  const StepGraph whole = graph_of({.zero = 1}, parse_cluster("dgx-a100:2"));
  const SubstitutedGraph substituted(whole, first_possible(whole, kInLevels));
  const OpId reduce = test::find_op(whole, "stage 0", "layer 0 qkv grad_reduce optimizer");
  const OpId gather = test::find_op(whole, "stage 0", "layer 0 qkv param_gather optimizer");
  const std::int64_t shard = (64 * 192 + 192) / 16;
  const StepGraph& graph = substituted.graph();
  EXPECT_EQ(graph.value(graph.op(substituted.leg_of(reduce, 0)).writes.front().value).elements(), 2 * shard);
  EXPECT_EQ(graph.op(substituted.leg_of(reduce, 1)).communication->bytes.value, 4 * 2 * shard);
  EXPECT_EQ(graph.op(substituted.leg_of(gather, 0)).communication->scope, Scope::outer);
  EXPECT_EQ(graph.op(substituted.leg_of(gather, 0)).communication->bytes.value, 2 * 2 * shard);  // bf16
  EXPECT_EQ(graph.op(substituted.leg_of(gather, 1)).communication->bytes.value, 2 * 16 * shard);
}

TEST(Substitute, MayNotBeAppliedWhereThereAreNoLevelsOrAnotherCollective) {
  const StepGraph one_node = graph_of({}, parse_cluster("dgx-a100:1"));
  const StepGraph sharded = graph_of({.zero = 3}, parse_cluster("dgx-a100:2"));
  for (const Operation& op : one_node.operations) {
    EXPECT_FALSE(may_be_substituted(one_node, op, Substitution::all_reduce_in_levels)) << describe(op);
    EXPECT_FALSE(may_be_substituted(one_node, op, Substitution::all_reduce_at_root)) << describe(op);
    const bool reduces = op.role == Role::grad_reduce;
    EXPECT_EQ(may_be_substituted(one_node, op, Substitution::all_reduce_in_halves), reduces) << describe(op);
  }
  for (const Operation& op : sharded.operations) {
    const bool gathers = op.role == Role::param_gather, reduces = op.role == Role::grad_reduce;
    EXPECT_EQ(may_be_substituted(sharded, op, Substitution::all_gather_in_levels), gathers) << describe(op);
    EXPECT_EQ(may_be_substituted(sharded, op, Substitution::reduce_scatter_in_levels), reduces) << describe(op);
  }
}

// The legs of an operation where all traffic of layers goes in levels, and their bytes beside those of the whole.
using Legs = std::vector<std::pair<Scope, double>>;
Legs legs_in_levels(const StepGraph& whole, const std::string& name) {
  const SubstitutedGraph substituted(whole, layer_traffic_in_levels(whole, {}));
  EXPECT_NO_THROW(verify_graph(substituted.graph()));
  const OpId origin = test::find_op(whole, "stage 0", name);
  Legs legs;
  for (const OpId leg : substituted.legs_of(origin)) {
    const Communication& c = *substituted.graph().op(leg).communication;
    legs.emplace_back(
        c.scope, static_cast<double>(c.bytes.value) / static_cast<double>(whole.op(origin).communication->bytes.value));
  }
  return legs;
}

// Tensor parallelism over two nodes of two ranks: a quarter of the rows, or of the sum's elements, for every rank.
TEST(Substitute, TakesTheTrafficOfLayersIntoLevels) {
  const ClusterSpec cluster = parse_cluster("dgx-a100:2,gpus=2");
  const auto legs_of = [&](const Layout& layout, const std::string& name) {
    return legs_in_levels(graph_of(layout, cluster), name);
  };
  const Layout rows{.tp = 4, .etp = 4, .sequence_parallel = true};
  EXPECT_EQ(legs_of(rows, "layer 0 attention_gather forward"), (Legs{{Scope::outer, 0.5}, {Scope::inner, 1}}));
  EXPECT_EQ(legs_of(rows, "layer 0 attention_reduce forward"), (Legs{{Scope::inner, 1}, {Scope::outer, 0.5}}));
  EXPECT_EQ(legs_of({.tp = 4, .etp = 4}, "layer 0 attention_reduce forward"),
            (Legs{{Scope::inner, 1}, {Scope::outer, 0.5}, {Scope::inner, 1}}));
  EXPECT_EQ(legs_of({.cp = 4}, "layer 0 kv_gather forward"), (Legs{{Scope::outer, 0.5}, {Scope::inner, 1}}));
  // Everything that a rank has for others goes through both legs.
  const StepGraph experts = graph_of({.ep = 4}, cluster);
  int exchanges = 0;
  const SubstitutedGraph substituted(experts, layer_traffic_in_levels(experts, {}));
  for (std::size_t i = 0; i < experts.operations.size(); ++i) {
    const Operation& op = experts.operations[i];
    if (op.role != Role::expert_dispatch && op.role != Role::expert_combine) continue;
    const std::vector<OpId> legs = substituted.legs_of(make_id<OpId>(i));
    ASSERT_EQ(legs.size(), 2U) << describe(op);
    for (const OpId leg : legs) {
      EXPECT_EQ(substituted.graph().op(leg).communication->bytes, op.communication->bytes);
    }
    ++exchanges;
  }
  EXPECT_GT(exchanges, 0);
}

// Eight ranks, two to a node, two nodes below a switch. Of a group's rows or sums a leg between switches carries what
// one place of four has, a leg below a switch what one of two has, and a leg in a node everything; of an exchange all
// legs carry everything.
TEST(Substitute, TakesTheTrafficOfLayersIntoThreeLevels) {
  const ClusterSpec cluster = test::below_switches(parse_cluster("dgx-a100:4,gpus=2"), 2, {1e9});
  Transformer wide = test::small_gpt();
  wide.heads = wide.kv_heads = 8;
  wide.head_dim = 8;
  const auto legs_of = [&](const Transformer& model, const Layout& layout, const std::string& name) {
    return legs_in_levels(test::build(test::request(model, cluster, layout)), name);
  };
  using enum Scope;
  const Legs out{{inner, 1}, {middle, 0.5}, {top, 0.25}}, back{{top, 0.25}, {middle, 0.5}, {inner, 1}};
  const Legs there_and_back{{inner, 1}, {middle, 0.5}, {top, 0.25}, {middle, 0.5}, {inner, 1}};
  const Layout rows{.tp = 8, .etp = 8, .sequence_parallel = true};
  EXPECT_EQ(legs_of(wide, rows, "layer 0 attention_gather forward"), back);
  EXPECT_EQ(legs_of(wide, rows, "layer 0 attention_reduce forward"), out);
  EXPECT_EQ(legs_of(wide, {.tp = 8, .etp = 8}, "layer 0 ffn_reduce forward"), there_and_back);
  EXPECT_EQ(legs_of(wide, {.cp = 8}, "layer 0 kv_gather forward"), back);
  const Legs everything{{inner, 1}, {middle, 1}, {top, 1}};
  EXPECT_EQ(legs_of(test::small_moe(), {.ep = 8}, "layer 1 expert_dispatch forward"), everything);
  // A group below one switch has two levels.
  EXPECT_EQ(legs_of(wide, {.tp = 4, .etp = 4, .sequence_parallel = true}, "layer 0 attention_reduce forward"),
            (Legs{{inner, 1}, {outer, 0.5}}));
}

// Rows that cross to a node once for all of its experts are sent so by the exchange itself.
TEST(Substitute, LeavesForwardedTokensAndGroupsInsideANodeWhole) {
  const ClusterSpec cluster = parse_cluster("dgx-a100:2,gpus=4");
  for (const Layout& layout : {Layout{.ep = 8, .ep_forwarding = true}, Layout{.tp = 4, .etp = 4}}) {
    const StepGraph whole = graph_of(layout, cluster);
    for (const TransferRule& rule : layer_traffic_in_levels(whole, {})) EXPECT_EQ(rule, Substitution::none);
  }
}

// Classes that share a transfer agree on the numbers of its legs.
TEST(Substitute, NumbersStagesAlikeInAllClasses) {
  const StepGraph whole = graph_of({}, test::uneven_nics());
  ASSERT_EQ(whole.classes.size(), 2U);
  const SubstitutedGraph substituted(whole, first_possible(whole, kInHalves));
  std::map<std::int32_t, std::vector<const Operation*>> by_number;
  for (const Operation& op : substituted.graph().operations) {
    if (op.communication) by_number[op.communication->transfer].push_back(&op);
  }
  int legs = 0;
  for (const auto& [number, members] : by_number) {
    ASSERT_EQ(members.size(), 2U) << number;
    EXPECT_EQ(describe(*members[0]), describe(*members[1]));
    legs += members[0]->rule != Substitution::none ? 1 : 0;
  }
  EXPECT_GT(legs, 50);
}

}  // namespace
}  // namespace weft
