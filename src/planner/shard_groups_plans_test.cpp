// Sharding in two levels under every policy: plans are safe, each gradient is summed inside its shard group before it
// is summed over replicas, and nothing changes where one set of shards is all there is.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "graph/substitute.hpp"
#include "plan/describe_operations.hpp"
#include "plan/happens_before.hpp"
#include "plan/test_oracle.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/passes.hpp"
#include "planner/search/decisions.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

std::string verdict(const Plan& plan) {
  const std::optional<Violation> found = verify_plan(plan, {.memory_limit = {}, .check_memory = false});
  return found ? found->message : "safe";
}

std::vector<std::string> policies() {
  std::vector<std::string> names = policy_names();
  std::erase_if(names, [](const std::string& name) { return searches(name); });
  return names;
}

// On 16 devices.
std::vector<test::NamedLayout> layouts() {
  using enum PipelineSchedule;
  return {
      {"dp 16 in 4", {.zero_shards = 4}},
      {"dp 16 in 8, clipped", {.zero_shards = 8, .clip_grad = 1}},
      {"dp 16 alone, clipped", {.zero_shards = 1, .clip_grad = 1}},
      {"tp 2, dp 8 in 2, clipped", {.tp = 2, .etp = 2, .zero_shards = 2, .sequence_parallel = true, .clip_grad = 1}},
      {"cp 4, dp 4 in 8", {.cp = 4, .zero_shards = 8, .clip_grad = 1}},
      {"pp 4, dp 4 in 2", {.pp = 4, .zero_shards = 2, .clip_grad = 1}},
      {"pp 2 interleaved, dp 8 in 4", {.pp = 2, .vpp = 4, .zero_shards = 4, .schedule = interleaved}},
      {"all",
       {.tp = 2,
        .cp = 2,
        .pp = 2,
        .etp = 2,
        .zero_shards = 2,
        .sequence_parallel = true,
        .clip_grad = 1,
        .mesh_order = {Axis::tp, Axis::pp, Axis::cp, Axis::dp}}},
      {"tp over nodes", {.tp = 2, .etp = 2, .zero_shards = 4, .mesh_order = {Axis::dp, Axis::tp, Axis::cp, Axis::pp}}},
  };
}

// Buckets small enough that the tests' models have several.
PlanRequest small_buckets(PlanRequest r) {
  r.options = {.bucket_parameters = 30'000, .bucket_mib = 0.1, .part_mib = 0.02};
  return r;
}

class ShardGroupPlans : public ::testing::TestWithParam<std::string> {};

TEST_P(ShardGroupPlans, AreSafeInEveryLayout) {
  const std::vector<Transformer> models{test::small_gpt(), test::small_llama()};
  const std::vector<ClusterSpec> clusters{test::uneven_nics(), parse_cluster("dgx-a100:2"),
                                          parse_cluster("local:16,nic=200Mb/s")};
  std::size_t turn = GetParam().size();
  for (const auto& [name, base] : layouts()) {
    for (int zero = 1; zero <= 3; ++zero, ++turn) {
      if (GetParam() == "lancet" && zero > 1) continue;  // it refuses them
      Layout layout = base;
      layout.zero = zero;
      const ClusterSpec& cluster = clusters[turn % 3];
      SCOPED_TRACE(fmt::format("{}, {}, zero {}, {}", models[turn % 2].name, name, zero, cluster.name));
      PlanRequest r = test::request(models[turn % 2], cluster, layout, layout.pp == 1 ? 2 : 4);
      if (turn % 4 != 3) r = small_buckets(r);
      const Plan plan = make_plan(r, test::build(r), GetParam());
      ASSERT_EQ(verdict(plan), "safe");
      if (turn % 3 == 0) {
        EXPECT_EQ(test::find_damage(plan, 1, 2).value_or("safe"), "safe");
      }
    }
  }
}

// Four nodes of eight: a set of 16 shards has a level inside the node and one between two nodes.
TEST_P(ShardGroupPlans, AreSafeWhereAShardGroupHasLevels) {
  for (int zero = 1; zero <= 3; ++zero) {
    if (GetParam() == "lancet" && zero > 1) continue;
    const PlanRequest r = small_buckets(
        test::request(test::small_gpt(2), parse_cluster("dgx-a100:4"), {.zero = zero, .zero_shards = 16}, 2));
    const SharedGraph graph = test::build(r);
    ASSERT_TRUE(graph->classes.front().group(GroupKind::shard).has_node_levels());
    Overlap overlap = decide_overlap(r, graph, GetParam());
    if (overlap.partition.substitutions.empty()) {
      overlap.partition.substitutions =
          first_possible(graph, {Substitution::reduce_scatter_in_levels, Substitution::all_gather_in_levels});
    }
    const WholePlan made = make_whole_plan(r, graph, GetParam(), overlap);
    ASSERT_EQ(verdict(made.plan()), "safe");
    EXPECT_EQ(test::find_damage(made.plan(), 1, 1).value_or("safe"), "safe");
  }
}

// Whatever a policy merges or cuts, what travels inside a shard group and over replicas in all is what the model has.
TEST_P(ShardGroupPlans, MoveEveryGradientAndNoOther) {
  for (int zero = 1; zero <= 3; ++zero) {
    if (GetParam() == "lancet" && zero > 1) continue;
    const PlanRequest r = small_buckets(
        test::request(test::small_llama(4), parse_cluster("dgx-a100:2"), {.zero = zero, .zero_shards = 4}, 2));
    const Plan plan = make_plan(r, test::build(r), GetParam());
    std::int64_t inside = 0, across = 0;
    for (const Operation& op : plan.graph.operations) {
      if (op.role == Role::grad_reduce && op.rule == Substitution::none) inside += op.communication->bytes.value;
      if (op.role == Role::shard_reduce) across += op.communication->bytes.value;
    }
    // Every tensor divides by 4 (vocabularies are padded to 512), so there is no padding: fp32.
    const std::int64_t parameters = total_parameters(r.model) + 2 * (512 - r.model.vocab) * r.model.hidden;
    EXPECT_EQ(inside, 4 * parameters);
    EXPECT_EQ(across, parameters);
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, ShardGroupPlans, ::testing::ValuesIn(policies()), [](const auto& test) {
  std::string name = test.param;
  std::erase(name, '-');
  return name;
});

TEST(ShardGroupPlansOfTheSearch, AreSafeWhateverItDecides) {
  std::mt19937_64 random(7);
  int planned = 0;
  for (const auto& [name, base] : layouts()) {
    for (int zero = 1; zero <= 3; ++zero) {
      Layout layout = base;
      layout.zero = zero;
      const PlanRequest r =
          test::request(test::small_gpt(), zero == 2 ? test::uneven_nics() : parse_cluster("dgx-a100:2"), layout, 4);
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
        SCOPED_TRACE(fmt::format("{}, zero {}, decision {}", name, zero, i));
        ASSERT_EQ(verdict(made.plan()), "safe");
        if (i == 1) {
          EXPECT_EQ(test::find_damage(made.plan(), 3, 1).value_or("safe"), "safe");
        }
      }
    }
  }
  EXPECT_GE(planned, 60);
}

TEST(ShardGroupPlansOfTheWholeGroup, AreThoseWithoutTheFlag) {
  for (const std::string& policy : policies()) {
    for (int zero = 1; zero <= (policy == "lancet" ? 1 : 3); ++zero) {
      PlanRequest r = small_buckets(test::request(test::small_gpt(), parse_cluster("dgx-a100:2"),
                                                  {.tp = 2, .pp = 2, .etp = 2, .zero = zero, .clip_grad = 1}));
      const Plan expected = make_plan(r, test::build(r), policy);
      r.layout.zero_shards = 4;
      const Plan found = make_plan(r, test::build(r), policy);
      SCOPED_TRACE(fmt::format("{} zero {}", policy, zero));
      EXPECT_EQ(found.graph.operations, expected.graph.operations);
      EXPECT_EQ(found.graph.values, expected.graph.values);
      EXPECT_EQ(found.classes, expected.classes);
      EXPECT_EQ(found.issues, expected.issues);
      EXPECT_EQ(found.placements, expected.placements);
      EXPECT_EQ(found.waits, expected.waits);
    }
  }
}

// Where micro-batches reduce inside shard groups (ZeRO 2 and 3), what replicas sum once a step is cut into parts that
// cover it and move its bytes: E elements of fp32 gradients on a rank. At ZeRO 1 it reads what the step's own reduction
// leaves, and stays whole.
TEST(ShardGroupPlansInParts, SumReplicasPartByPart) {
  for (const int zero : {1, 2, 3}) {
    for (const std::int32_t parts : {2, 3, 8}) {
      SCOPED_TRACE(fmt::format("zero {}, {} parts", zero, parts));
      const PlanRequest r =
          test::request(test::small_gpt(2), parse_cluster("dgx-a100:2"), {.zero = zero, .zero_shards = 8}, 2);
      const SharedGraph graph = test::build(r);
      Overlap overlap = decide_overlap(r, graph, "fsdp");
      overlap.partition.buckets.clear();
      for (const Operation& op : graph->operations) {
        overlap.partition.parts.push_back(op.role == Role::shard_reduce ? parts : 1);
      }
      const WholePlan made = make_whole_plan(r, graph, "fsdp", overlap);
      ASSERT_EQ(verdict(made.plan()), "safe");
      EXPECT_EQ(test::find_damage(made.plan(), 1, 1).value_or("safe"), "safe");
      std::map<OpId, std::pair<int, std::int64_t>> found;  // of an operation of the model: parts, bytes
      for (const Operation& op : made.plan().graph.operations) {
        if (op.role != Role::shard_reduce) continue;
        auto& [count, bytes] = found[op.origins.front().operation];
        ++count;
        bytes += op.communication->bytes.value;
      }
      for (const auto& [id, all] : found) {
        const std::int64_t elements = graph->value(read_of(graph->op(id), Operand::payload)).elements();
        EXPECT_EQ(all.first, zero == 1 ? 1 : parts) << describe(graph->op(id));
        EXPECT_EQ(all.second, 4 * elements) << describe(graph->op(id));
      }
      EXPECT_FALSE(found.empty());
    }
  }
}

// Both reductions are gradients in the accounting, in groups of their own sizes.
TEST(ShardGroupPlansOfMegatron, CountBothReductionsAsGradients) {
  const PlanRequest r = test::request(test::small_gpt(), parse_cluster("dgx-a100:2"), {.zero = 1, .zero_shards = 8}, 2);
  const Plan plan = make_plan(r, test::build(r), "megatron-grad");
  Timeline timeline;
  const std::vector<TimelineOperation> described =
      describe_operations(plan, std::vector<Nanos>(plan.graph.operations.size()), true, timeline);
  for (std::size_t i = 0; i < described.size(); ++i) {
    const Role role = plan.graph.operations[i].role;
    if (role != Role::grad_reduce && role != Role::shard_reduce) continue;
    EXPECT_EQ(described[i].traffic, TrafficKind::dp_grad);
    EXPECT_EQ(described[i].group_size, role == Role::grad_reduce ? 8 : 2);
    EXPECT_EQ(timeline.names[described[i].group], role == Role::grad_reduce ? "shard" : "replica");
  }
}

// Of a bucket's two reductions the second begins as soon as the first has ended, beside the rest of backward.
TEST(ShardGroupPlansOfMegatron, ReduceBucketByBucket) {
  const PlanRequest r =
      small_buckets(test::request(test::small_gpt(), parse_cluster("dgx-a100:2"), {.zero = 1, .zero_shards = 4}, 2));
  const Plan plan = make_plan(r, test::build(r), "megatron-grad");
  std::vector<std::vector<Origin>> inside, across;
  for (std::size_t i = 0; i < plan.graph.operations.size(); ++i) {
    const Operation& op = plan.graph.operations[i];
    if (op.role != Role::grad_reduce && op.role != Role::shard_reduce) continue;
    EXPECT_FALSE(plan.issues[i].blocking) << describe(op);
    (op.role == Role::grad_reduce ? inside : across).push_back(op.origins);
  }
  ASSERT_GT(inside.size(), 3U);
  ASSERT_EQ(across.size(), inside.size());
  const StepGraph original = test::build(r);
  const auto parameters = [&](const std::vector<Origin>& origins) {
    std::vector<std::pair<std::int32_t, Role>> names;
    for (const Origin& origin : origins) {
      names.emplace_back(original.op(origin.operation).layer, original.op(origin.operation).subject);
    }
    std::sort(names.begin(), names.end());
    return names;
  };
  std::vector<std::vector<std::pair<std::int32_t, Role>>> first, second;
  for (const auto& origins : inside) first.push_back(parameters(origins));
  for (const auto& origins : across) second.push_back(parameters(origins));
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
}

}  // namespace
}  // namespace weft
