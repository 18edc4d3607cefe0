// Plans whose transfers are carried out in legs: never below the bound, and where they gain.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "bound/bound.hpp"
#include "graph/substitute.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/overlap.hpp"
#include "sim/test_steps.hpp"

namespace weft::test {
namespace {

const std::vector<Substitution> kInLevels{Substitution::all_reduce_in_levels, Substitution::reduce_scatter_in_levels,
                                          Substitution::all_gather_in_levels, Substitution::all_to_all_in_levels};
const std::vector<Substitution> kInHalves{Substitution::all_reduce_in_halves};

WholePlan plan_in_legs(const PlanRequest& r, std::string_view policy, const std::vector<Substitution>& wanted,
                       std::int32_t parts = 1) {
  const SharedGraph graph = build(r);
  Overlap overlap = decide_overlap(r, graph, std::string(policy));
  overlap.partition.substitutions = first_possible(graph, wanted);
  if (parts > 1) {
    overlap.partition.parts.clear();
    for (const Operation& op : graph->operations) overlap.partition.parts.push_back(op.per_micro_batch ? 1 : parts);
  }
  return make_whole_plan(r, graph, std::string(policy), overlap);
}

// Emulated, so that the programs of the legs are simulated: four nodes of four ranks.
ClusterSpec emulated_nodes() {
  ClusterSpec spec = parse_cluster("local:4,nic=1Gb/s");
  spec.name = "nodes of four";
  spec.devices_per_node = 4;
  LevelSpec inside = spec.levels.front();
  inside.name = "shm";
  inside.joins = Domain::node;
  inside.bandwidth = {10 * inside.bandwidth.bytes_per_second};
  spec.levels.insert(spec.levels.begin(), inside);
  return spec;
}

class BoundInLegs : public testing::TestWithParam<const char*> {};

TEST_P(BoundInLegs, HoldsForEveryLayout) {
  int turn = 0, legs = 0;
  for (const auto& [name, base] : layouts()) {
    for (int zero = 0; zero <= 2; ++zero, ++turn) {
      Layout layout = base;
      layout.zero = zero;
      const std::vector<ClusterSpec> clusters{parse_cluster("dgx-a100:2"), emulated_nodes(), parse_cluster("p3dn:2"),
                                              parse_cluster("dgx-a100:4,gpus=4,nvlink=10MB/s")};
      PlanRequest r =
          request(base.ep > 1 ? small_moe() : small_gpt(), clusters[turn % 4], layout, layout.pp == 1 ? 2 : 4);
      const bool apart = turn % 2 == 1;
      if (apart) r.options = {.bucket_parameters = 1, .bucket_mib = 0};
      if (turn % 3 == 0) idealize(r);
      const std::vector<Substitution>& wanted = turn % 5 == 4 && zero == 0 ? kInHalves : kInLevels;
      SCOPED_TRACE(fmt::format("{}, zero {}, {}, turn {}", name, zero, r.cluster.name, turn));
      const Plan plan = plan_in_legs(r, GetParam(), wanted, apart ? 2 : 1).plan();
      for (const Operation& op : plan.graph.operations) legs += op.rule != Substitution::none ? 1 : 0;
      const Timeline timeline = simulated(plan, r.profile);
      checked_accounting(timeline);
      const StepGraph graph = build(r);
      const Cluster cluster(r.cluster);
      const double bound = step_bound(graph, CostModel(graph, cluster, r.profile)).seconds * 1e9;
      const auto rounding = 0.5 * static_cast<double>(timeline.operations.size());
      EXPECT_LE(bound, timeline.period_ns + rounding);
    }
  }
  EXPECT_GT(legs, 100);
}

INSTANTIATE_TEST_SUITE_P(Policies, BoundInLegs, testing::Values("serial", "megatron-param", "priority"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Two nodes of eight with slow NICs and nothing else of weight. A ring of 16 sends 2 * 15/16 of the buffer past every
// rank, and one edge in eight crosses the NICs: 15/64 of the bytes on each. In levels it is 2 * 1/2 of one eighth: 1/8.
TEST(PlansInLegs, InLevelsMoveLessBetweenNodes) {
  PlanRequest r = request(small_gpt(2), parse_cluster("dgx-a100:2,nic=8MB/s"), {}, 1);
  idealize(r);
  const double ring = simulated(plan_in_legs(r, "serial", {}).plan(), r.profile).period_ns;
  const double levels = simulated(plan_in_legs(r, "serial", kInLevels).plan(), r.profile).period_ns;
  EXPECT_NEAR(levels / ring, 8.0 / 15, 0.01);
}

const std::vector<Substitution> kInThree{Substitution::all_reduce_in_three_levels,
                                         Substitution::reduce_scatter_in_three_levels,
                                         Substitution::all_gather_in_three_levels};

// Two ranks to a node, two nodes below a switch, two switches; every rank has a link of its own between the switches.
ClusterSpec two_switches(const std::string& nodes, double spine_bytes_per_second) {
  return below_switches(parse_cluster(nodes), 2, {spine_bytes_per_second});
}

// Nothing but the links between the switches has weight. Of B bytes a ring of 8 sends 2 * 7/8 past every rank, one edge
// in four crosses: 7/16. In two levels half of B goes round a ring of 4, of which every second edge crosses: 2 * 3/4 *
// 1/2 * 1/2 = 3/8. In three levels a quarter is summed between two: 2 * 1/2 * 1/4 = 1/4.
TEST(PlansInLegs, InThreeLevelsMoveLessBetweenSwitches) {
  PlanRequest r = request(small_gpt(2), two_switches("dgx-a100:4,gpus=2", 1e6), {}, 1);
  idealize(r);
  const auto period = [&](const std::vector<Substitution>& wanted) {
    return simulated(plan_in_legs(r, "serial", wanted).plan(), r.profile).period_ns;
  };
  EXPECT_NEAR(period(kInThree) / period({}), 4.0 / 7, 0.01);
  EXPECT_NEAR(period(kInThree) / period(kInLevels), 2.0 / 3, 0.01);
}

TEST(PlansInLegs, InThreeLevelsAreProvenAndNeverBelowTheBound) {
  ClusterSpec emulated = two_switches("local:4,nic=1Gb/s", 3e7);
  emulated.devices_per_node = 2;
  LevelSpec inside = emulated.levels.front();
  inside.name = "shm";
  inside.joins = Domain::node;
  inside.bandwidth = {1.25e9};
  emulated.levels.insert(emulated.levels.begin(), inside);
  int legs = 0;
  for (const ClusterSpec& cluster : {two_switches("dgx-a100:4,gpus=2", 1e9), emulated}) {
    for (int zero = 0; zero <= 3; ++zero) {
      for (const char* policy : {"serial", "megatron-param", "fsdp"}) {
        for (const std::int32_t parts : {1, 2}) {
          SCOPED_TRACE(fmt::format("{} zero {} {} in {} parts", cluster.name, zero, policy, parts));
          Layout layout;
          layout.zero = zero;
          PlanRequest r = request(small_gpt(3), cluster, layout, 2);
          if (parts > 1) r.options = {.bucket_parameters = 1, .bucket_mib = 0};
          const WholePlan made = plan_in_legs(r, policy, kInThree, parts);
          const std::optional<Violation> violation = verify_plan(made, {.memory_limit = {}, .check_memory = false});
          ASSERT_FALSE(violation.has_value()) << violation->message;
          for (const Operation& op : made.plan().graph.operations) {
            legs += op.communication && op.communication->scope == Scope::top ? 1 : 0;
          }
          const Timeline timeline = simulated(made.plan(), r.profile);
          const StepGraph graph = build(r);
          const Cluster machine(r.cluster);
          const double bound = step_bound(graph, CostModel(graph, machine, r.profile)).seconds * 1e9;
          EXPECT_LE(bound, timeline.period_ns + 0.5 * static_cast<double>(timeline.operations.size()));
        }
      }
    }
  }
  EXPECT_GT(legs, 100);
}

// How long an all-to-all's leg takes beside the whole where the links of `level` reach all of their rate with messages
// `larger` times as large as those of the whole, and only that part of it with those.
void expect_share_of_whole(PlanRequest r, const std::string& level, std::int64_t larger, Substitution rule,
                           Scope scope) {
  idealize(r);
  const auto dispatches = [](const StepGraph& graph) {
    std::vector<OpId> found;
    for (const OpId id : graph.operations.ids()) {
      if (graph.op(id).role == Role::expert_dispatch) found.push_back(id);
    }
    return found;
  };
  const StepGraph graph = build(r);
  ASSERT_FALSE(dispatches(graph).empty());
  const std::int64_t bytes = graph.op(dispatches(graph).front()).communication->bytes.value;
  const double share = 1.0 / static_cast<double>(larger);
  r.profile.links[level].all_to_all[r.layout.ep] = {{Bytes{bytes}, share}, {Bytes{larger * bytes}, 1.0}};
  const Cluster cluster(r.cluster);
  const CostModel cost(graph, cluster, r.profile);
  for (const OpId id : dispatches(graph)) {
    const Operation& whole = graph.op(id);
    Operation across = whole;
    across.rule = rule;
    across.leg = static_cast<std::int32_t>(std::ssize(rule_of(rule).legs)) - 1;
    across.communication->scope = scope;
    EXPECT_NEAR(static_cast<double>(cost.alone(across).value) / static_cast<double>(cost.alone(whole).value), share,
                0.01);
  }
}

// Sixteen ranks on two nodes. Messages of an all-to-all's leg between nodes are eight times as large as those of the
// whole, and both have half of the buffer to carry across. Eight ranks below two switches, two to a node: messages of
// the leg between the switches are four times as large, and half of the buffer crosses again.
TEST(PlansInLegs, ExchangesInLevelsSendLargerMessages) {
  Transformer model = small_moe();
  model.experts->count = 16;
  expect_share_of_whole(request(model, parse_cluster("dgx-a100:2,nic=8MB/s"), {.ep = 16}, 1), "nic", 8,
                        Substitution::all_to_all_in_levels, Scope::outer);
  expect_share_of_whole(request(model, two_switches("dgx-a100:4,gpus=2", 1e6), {.ep = 8}, 1), "spine", 4,
                        Substitution::all_to_all_in_three_levels, Scope::top);
}

// Tensor parallelism over two nodes whose NICs are slow: the search takes the traffic of layers into levels, the plan
// is proven, and no faster than its bound.
TEST(PlansInLegs, TheSearchTakesTensorParallelismOverNodesIntoLevels) {
  for (const bool rows : {false, true}) {
    PlanRequest ideal = request(small_gpt(2), parse_cluster("dgx-a100:2,gpus=2,nic=8MB/s"),
                                {.tp = 4, .etp = 4, .sequence_parallel = rows}, 2);
    idealize(ideal);
    PlanRequest r = searching(ideal);
    r.search.budget_s = 0.3;
    const SharedGraph graph = build(r);
    const WholePlan made = make_whole_plan(r, graph, "weft");
    const std::optional<Violation> violation = verify_plan(made, {.memory_limit = {}, .check_memory = false});
    ASSERT_FALSE(violation.has_value()) << violation->message;
    int legs = 0;
    for (const Operation& op : made.plan().graph.operations) {
      legs += op.rule != Substitution::none && is_layer_traffic(op) ? 1 : 0;
    }
    EXPECT_GT(legs, 0);
    const Timeline timeline = simulated(made.plan(), r.profile);
    const Cluster cluster(r.cluster);
    const double bound = step_bound(graph, CostModel(graph, cluster, r.profile)).seconds * 1e9;
    EXPECT_LE(bound, timeline.period_ns + 0.5 * static_cast<double>(timeline.operations.size()));
  }
}

// Tensor, context and expert parallelism over two switches with slow links between them: proven, never below the bound,
// and the search takes the traffic of tensor parallelism into levels.
TEST(PlansInLegs, LayerTrafficInThreeLevelsIsProvenAndNeverBelowTheBound) {
  Transformer wide = small_gpt(2);
  wide.heads = wide.kv_heads = 8;
  wide.head_dim = 8;
  struct Case {
    Transformer model;
    Layout layout;
  };
  for (const Case& c : std::vector<Case>{{wide, {.tp = 8, .etp = 8}},
                                         {wide, {.tp = 8, .etp = 8, .sequence_parallel = true}},
                                         {wide, {.cp = 8}},
                                         {small_moe(4), {.ep = 8}}}) {
    PlanRequest ideal = request(c.model, two_switches("dgx-a100:4,gpus=2", 1e7), c.layout, 2);
    idealize(ideal);
    PlanRequest r = searching(ideal);
    r.search.budget_s = 0.3;
    const SharedGraph graph = build(r);
    const Cluster cluster(r.cluster);
    const double bound = step_bound(graph, CostModel(graph, cluster, r.profile)).seconds * 1e9;
    Overlap all = decide_overlap(r, graph, "priority");
    all.partition.substitutions = layer_traffic_in_levels(graph, {});
    for (const bool searched : {false, true}) {
      SCOPED_TRACE(fmt::format("tp {} cp {} ep {}, searched: {}", c.layout.tp, c.layout.cp, c.layout.ep, searched));
      const WholePlan made = searched ? make_whole_plan(r, graph, "weft") : make_whole_plan(r, graph, "priority", all);
      const std::optional<Violation> violation = verify_plan(made, {.memory_limit = {}, .check_memory = false});
      ASSERT_FALSE(violation.has_value()) << violation->message;
      int legs = 0;
      for (const Operation& op : made.plan().graph.operations) {
        const bool in_levels = op.rule != Substitution::none && is_layer_traffic(op);
        legs += in_levels && (searched || op.communication->scope == Scope::top) ? 1 : 0;
      }
      if (!searched || c.layout.tp > 1) {
        EXPECT_GT(legs, 0);
      }
      const Timeline timeline = simulated(made.plan(), r.profile);
      EXPECT_LE(bound, timeline.period_ns + 0.5 * static_cast<double>(timeline.operations.size()));
    }
  }
}

// In halves or in levels, the parts of a bucket follow each other through the queues of the legs: with slow links at
// both levels the inner leg of one part runs beside the outer leg of another.
TEST(PlansInLegs, PartsPipelineThroughTheLevels) {
  // Inner and outer links that take equally long: 7/8 of B at 7 MB/s, twice inside; 1/8 of B at 1 MB/s outside.
  PlanRequest r = request(small_gpt(2), parse_cluster("dgx-a100:2,nvlink=7MB/s,nic=8MB/s"), {}, 1);
  idealize(r);
  r.options = {.bucket_parameters = 1, .bucket_mib = 0};
  const double whole = simulated(plan_in_legs(r, "ddp", kInLevels).plan(), r.profile).period_ns;
  const double parts = simulated(plan_in_legs(r, "ddp", kInLevels, 8).plan(), r.profile).period_ns;
  EXPECT_LT(parts, 0.97 * whole);
}

}  // namespace
}  // namespace weft::test
