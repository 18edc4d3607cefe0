#include "planner/partition/choice_tree.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "model/presets.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

// A model, its graph and what its operations cost.
struct Costed {
  Costed(const Transformer& model, const std::string& cluster_name, Layout layout)
      : request(test::request(model, parse_cluster(cluster_name), std::move(layout), 1)),
        graph(test::build(request)),
        cluster(request.cluster),
        cost(graph, cluster, request.profile) {}

  OpId first(Role role, Phase phase) const {
    for (std::size_t i = 0; i < graph.operations.size(); ++i) {
      if (graph.operations[i].role == role && graph.operations[i].phase == phase) return make_id<OpId>(i);
    }
    ADD_FAILURE() << "no " << name_of(role);
    return {};
  }

  PlanRequest request;
  StepGraph graph;
  Cluster cluster;
  CostModel cost;
};

void for_each_node(const ChoiceNode& node, const std::function<void(const ChoiceNode&)>& visit) {
  visit(node);
  for (const ChoiceNode& below : node.under) for_each_node(below, visit);
}

// Identical jobs through machines one after the other: who starts when, machine by machine.
double flow_shop(const std::vector<double>& machine_seconds, int jobs) {
  std::vector<double> free(machine_seconds.size(), 0.0);
  for (int job = 0; job < jobs; ++job) {
    double ready = 0;
    for (std::size_t m = 0; m < free.size(); ++m) {
      free[m] = std::max(free[m], ready) + machine_seconds[m];
      ready = free[m];
    }
  }
  return free.back();
}

// Four ranks on two nodes, nothing but the NICs has weight. Of B bytes a ring passes 3/4 B past every rank, every
// second edge crosses: 3/8. In levels two ranks gather half of B between nodes, half of which crosses: 1/4. Sums are
// both twice.
TEST(ChoiceTree, PricesTheTrafficOfLayersInLevels) {
  for (const bool rows : {true, false}) {
    PlanRequest request = test::request(test::small_gpt(), parse_cluster("dgx-a100:2,gpus=2,nic=8MB/s"),
                                        {.tp = 4, .etp = 4, .sequence_parallel = rows}, 1);
    remove_overheads(request.profile);
    for (LevelSpec& level : request.cluster.levels) level.latency = Nanos{0};
    const StepGraph graph = test::build(request);
    const Cluster cluster(request.cluster);
    const CostModel cost(graph, cluster, request.profile);
    for (const OpId id : graph.operations.ids()) {
      if (graph.op(id).role != Role::attention_reduce) continue;
      const ChoiceNode tree = choice_tree(graph, cost, id);
      ASSERT_EQ(tree.under.size(), 2U) << describe(graph.op(id));
      EXPECT_NEAR(tree.under[1].under[0].transfer_s / tree.under[0].under[0].transfer_s, 2.0 / 3, 0.01);
    }
  }
}

// Eight ranks, two to a node, two nodes below a switch, nothing but the links between switches has weight. Of B bytes a
// ring passes 7/8 B past every rank, every fourth edge crosses: 7/32. In two levels four ranks gather half of B, and
// every second edge crosses: 3/16. In three, or in two that meet at the switches, two ranks gather a quarter, half of
// which crosses: 1/8. Sums are all twice.
TEST(ChoiceTree, PricesTheTrafficOfLayersInThreeLevels) {
  Transformer model = test::small_gpt();
  model.heads = model.kv_heads = 8;
  model.head_dim = 8;
  for (const bool rows : {true, false}) {
    PlanRequest request = test::request(model, test::below_switches(parse_cluster("dgx-a100:4,gpus=2"), 2, {1e6}),
                                        {.tp = 8, .etp = 8, .sequence_parallel = rows}, 1);
    remove_overheads(request.profile);
    for (LevelSpec& level : request.cluster.levels) level.latency = Nanos{0};
    const StepGraph graph = test::build(request);
    const Cluster cluster(request.cluster);
    const CostModel cost(graph, cluster, request.profile);
    for (const OpId id : graph.operations.ids()) {
      if (graph.op(id).role != Role::attention_reduce) continue;
      const ChoiceNode tree = choice_tree(graph, cost, id);
      ASSERT_EQ(tree.under.size(), 4U) << describe(graph.op(id));
      const double whole = tree.under[0].under[0].transfer_s;
      for (const ChoiceNode& branch : tree.under) {
        if (branch.rule == Substitution::none) continue;
        const bool ends_at_switches = has_three_levels(rule_of(branch.rule.rule)) || branch.rule.levels.inner == 4;
        const double expected = ends_at_switches ? 4.0 / 7 : 6.0 / 7;
        EXPECT_NEAR(branch.under[0].transfer_s / whole, expected, 0.01) << in_words(branch.rule);
      }
    }
  }
}

TEST(ChoiceTree, WholeCostsWhatTheTransferTakes) {
  const Costed c(test::small_gpt(), "dgx-a100:2", {.dp = 16});
  const OpId reduction = c.first(Role::grad_reduce, Phase::optimizer);
  const ChoiceNode tree = choice_tree(c.graph, c.cost, reduction);
  EXPECT_EQ(tree.under.front().rule, Substitution::none);
  StepGraph chosen = c.graph;
  choose_algorithms(chosen, c.cost);
  EXPECT_DOUBLE_EQ(tree.under.front().under.front().transfer_s, seconds(c.cost.alone(chosen.op(reduction))));
}

TEST(ChoiceTree, InnerNodesCarryTheirCheapestLeaf) {
  const Costed c(test::small_gpt(), "dgx-a100:2", {.tp = 2, .dp = 8, .micro_batch = 4});
  for (std::size_t i = 0; i < c.graph.operations.size(); ++i) {
    if (!c.graph.operations[i].communication) continue;
    for_each_node(choice_tree(c.graph, c.cost, make_id<OpId>(i)), [](const ChoiceNode& node) {
      for (const ChoiceNode& below : node.under) {
        EXPECT_LE(node.cost_s(), below.cost_s());
      }
      EXPECT_GE(node.left_s, 0);
      EXPECT_LE(node.left_s, node.transfer_s);
    });
  }
}

// Every rule that graphs are rewritten by is a branch: that of levels where the group has them. A sum at one rank,
// which no plan has, is none; neither is any rule for traffic inside layers.
TEST(ChoiceTree, HasABranchForEveryRuleThatPlansCanTake) {
  const Costed two_nodes(test::small_gpt(), "dgx-a100:2", {.dp = 16});
  const Costed one_node(test::small_gpt(), "dgx-a100:1", {.dp = 8});
  const auto rules = [](const Costed& c) {
    std::vector<TransferRule> found;
    for (const ChoiceNode& branch : choice_tree(c.graph, c.cost, c.first(Role::grad_reduce, Phase::optimizer)).under) {
      found.push_back(branch.rule);
    }
    return found;
  };
  using enum Substitution;
  EXPECT_EQ(rules(two_nodes), (std::vector<TransferRule>{none, all_reduce_in_halves, all_reduce_in_levels}));
  EXPECT_EQ(rules(one_node), (std::vector<TransferRule>{none, all_reduce_in_halves}));
  const Costed tensor_parallel(test::small_gpt(), "dgx-a100:1,gpus=4", {.tp = 4});
  const OpId sum = tensor_parallel.first(Role::ffn_reduce, Phase::forward);
  EXPECT_EQ(choice_tree(tensor_parallel.graph, tensor_parallel.cost, sum).under.size(), 1U);
}

// Of legs in parts: as long as a shop where every part passes every leg in turn.
TEST(ChoiceTree, StagesFollowEachOtherPartByPart) {
  const Costed c(test::small_gpt(), "dgx-a100:2", {.dp = 16});
  const ChoiceNode tree = choice_tree(c.graph, c.cost, c.first(Role::grad_reduce, Phase::optimizer));
  const auto halves = std::find_if(tree.under.begin(), tree.under.end(), [](const ChoiceNode& branch) {
    return branch.rule == Substitution::all_reduce_in_halves;
  });
  ASSERT_NE(halves, tree.under.end());
  for (const ChoiceNode& leaf : halves->under) {
    // A ring's two halves move the same bytes in the same steps.
    const double leg = leaf.transfer_s / (leaf.parts + 1);
    EXPECT_NEAR(leaf.transfer_s, flow_shop({leg, leg}, leaf.parts), 1e-9 * leaf.transfer_s);
  }
}

// Of layers in parts: what computing and travelling part by part takes longer than computing.
TEST(ChoiceTree, WhatIsLeftIsThatOfAShopOfComputeAndTravel) {
  const Costed c(test::small_gpt(), "dgx-a100:1,gpus=4", {.tp = 4, .micro_batch = 8});
  const OpId reduction = c.first(Role::ffn_reduce, Phase::forward);
  const ChoiceNode tree = choice_tree(c.graph, c.cost, reduction);
  ASSERT_GE(tree.under.front().under.size(), 3U);
  for (const ChoiceNode& leaf : tree.under.front().under) {
    if (leaf.parts == 1) {
      EXPECT_DOUBLE_EQ(leaf.left_s, leaf.transfer_s);
      EXPECT_DOUBLE_EQ(leaf.loss_s, 0);
      continue;
    }
    // Reading compute back from what is left: T - C (k - 1) / k, or T / k where compute is the longer.
    const double k = leaf.parts, hidden = leaf.transfer_s - leaf.left_s;
    const double compute = hidden * k / (k - 1);
    const double made = flow_shop({compute / k, leaf.transfer_s / k}, leaf.parts) - compute;
    EXPECT_NEAR(made, leaf.left_s, 1e-9) << leaf.parts;
  }
}

// Two legs of a reduction in levels follow each other part by part: the flow shop says for how many parts that is the
// shortest, and the choice carries that number along with the rule.
TEST(ChoiceTree, TheCheapestChoiceHasTheRuleAndThePartsOfTheBestLeaf) {
  const Costed c(model_preset("megatron-1.7b"), "dgx-a100:2", {.dp = 16});
  const CheapestChoices choices = cheapest_choices(c.graph, c.cost);
  ASSERT_FALSE(choices.rules.empty());
  ASSERT_FALSE(choices.parts.empty());
  std::int64_t cut = 0;
  for (std::size_t i = 0; i < c.graph.operations.size(); ++i) {
    if (c.graph.operations[i].role != Role::grad_reduce) {
      EXPECT_EQ(choices.parts[i], 1);
      continue;
    }
    const ChoiceNode tree = choice_tree(c.graph, c.cost, make_id<OpId>(i));
    const ChoiceNode* best = nullptr;
    for (const ChoiceNode& branch : tree.under) {
      for (const ChoiceNode& leaf : branch.under) {
        if (best == nullptr || leaf.cost_s() < best->cost_s()) best = &leaf;
      }
    }
    if (choices.rules[i] == Substitution::none) continue;
    EXPECT_EQ(choices.rules[i], best->rule);
    EXPECT_EQ(choices.parts[i], best->parts);
    cut += best->parts > 1 ? 1 : 0;
  }
  EXPECT_GT(cut, 0);
}

}  // namespace
}  // namespace weft
