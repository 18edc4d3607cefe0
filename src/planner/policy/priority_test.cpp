// What `priority` cuts, merges and orders, in cases where the answer follows from thought alone.
#include "planner/policy/priority.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.hpp"
#include "graph/operation_part.hpp"
#include "plan/verify/verify_plan.hpp"
#include "planner/partition/buckets.hpp"
#include "planner/partition/urgent_parts.hpp"
#include "planner/schedule/next_use.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

PlanRequest two_ranks(const char* nic, Layout layout = {}, Transformer model = test::small_gpt(4)) {
  PlanRequest r =
      test::request(std::move(model), parse_cluster(std::string("local:2,nic=") + nic), std::move(layout), 1);
  r.options.part_mib = 1.0 / 64;  // 16 KiB
  return r;
}

std::vector<Operation> of_role(const Plan& plan, Role role) {
  std::vector<Operation> found;
  for (const OpId id : block_of(plan.classes.front(), BlockKind::update).operations) {
    if (plan.graph.op(id).role == role) found.push_back(plan.graph.op(id));
  }
  return found;
}

// Two ranks exchange B bytes in latency + B / bandwidth. (a + p / b) (1 + B / p) is least at p = sqrt(a b B), and one
// of the halves of B lies within a factor of sqrt(2) of that. More than 64 parts it never makes.
TEST(BestPart, IsTheGeometricMeanOfLatencyAndAll) {
  for (const double latency_ns : {1e3, 50e3, 2e6, 20e6}) {
    PlanRequest r = two_ranks("200Mb/s");
    for (LevelSpec& level : r.cluster.levels) level.latency = Nanos{static_cast<std::int64_t>(latency_ns)};
    const StepGraph graph = test::build(r);
    const Cluster cluster(r.cluster);
    const CostModel cost(graph, cluster, r.profile);
    const auto reduction = std::find_if(graph.operations.begin(), graph.operations.end(),
                                        [](const Operation& op) { return op.role == Role::grad_reduce; });
    const Bytes all{51'000'000};
    const double best = std::sqrt(latency_ns * 0.025 * 51e6);
    const auto found = static_cast<double>(best_part(cost, *reduction, all).value);
    const double smallest = 51e6 / 64;
    EXPECT_GE(found, std::max(smallest - 1, best / 1.42)) << latency_ns;
    EXPECT_LE(found, std::max(smallest, best * 1.42)) << latency_ns;
  }
}

// Sizes of small_gpt's gradients in KiB of 256 elements: qkv 48.75, attention_out 16.25, ffn_in 65, ffn_out 64.25, a
// norm 0.5, the embedding 128, positions 16. Parts of 16 KiB: the nearest count; both norms of a layer together.
TEST(Priority, CutsLargeParametersAndJoinsTheSmallOnesOfALayer) {
  const PlanRequest r = two_ranks("200Mb/s");
  const Plan plan = make_plan(r, test::build(r), "priority");
  std::map<std::pair<std::int32_t, Role>, int> count;
  for (const Operation& op : of_role(plan, Role::grad_reduce)) {
    ++count[{op.layer, op.subject}];
    if (op.origins.size() > 1) {
      EXPECT_EQ(op.origins.size(), 2u);
      EXPECT_EQ(op.communication->bytes.value, 2 * 512);
    }
  }
  std::map<std::pair<std::int32_t, Role>, int> expected{
      {{-1, Role::embedding}, 8}, {{-1, Role::positions}, 1}, {{-1, Role::final_norm}, 1}};
  for (std::int32_t layer = 0; layer < 4; ++layer) {
    expected[{layer, Role::qkv}] = 3;
    expected[{layer, Role::attention_out}] = 1;
    expected[{layer, Role::ffn_in}] = expected[{layer, Role::ffn_out}] = 4;
    expected[{layer, Role::grad_reduce}] = 1;
  }
  EXPECT_EQ(count, expected);
  // What travels together is updated together: the embedding, the positions, five of every layer, the last norm.
  EXPECT_EQ(of_role(plan, Role::update).size(), 2u + 4 * 5 + 1);
}

// Layers that are smaller than a part travel and are updated together.
TEST(Priority, JoinsLayersThatAreSmallerThanAPart) {
  PlanRequest r = two_ranks("200Mb/s");
  r.options.part_mib = 100;
  const Plan plan = make_plan(r, test::build(r), "priority");
  EXPECT_EQ(of_role(plan, Role::grad_reduce).size(), 1u);
  EXPECT_EQ(of_role(plan, Role::update).size(), 1u);
  r.options.part_mib = 0;
  EXPECT_THROW(make_plan(r, test::build(r), "priority"), Error);
}

std::vector<std::int32_t> layers_of(const std::vector<Operation>& operations, std::int32_t last) {
  std::vector<std::int32_t> layers;
  for (const Operation& op : operations) {
    const bool head = op.subject == Role::final_norm || op.subject == Role::head;
    const std::int32_t layer = op.layer >= 0 ? op.layer : head ? last : -1;
    if (layers.empty() || layers.back() != layer) layers.push_back(layer);
  }
  return layers;
}

TEST(Priority, OnAFastLinkReducesAsBackwardFinishes) {
  PlanRequest r = two_ranks("100000Gb/s", {}, test::small_llama(4));
  for (LevelSpec& level : r.cluster.levels) level.latency = Nanos{0};
  const Plan plan = make_plan(r, test::build(r), "priority");
  EXPECT_EQ(layers_of(of_role(plan, Role::grad_reduce), 4), (std::vector<std::int32_t>{4, 3, 2, 1, 0, -1}));
  EXPECT_EQ(layers_of(of_role(plan, Role::update), 4), (std::vector<std::int32_t>{-1, 0, 1, 2, 3, 4}));
}

// The link is busy with the very first part until backward has ended; the rest goes in the order of use, in which the
// embedding is first and the head, whose other parts had to wait, last.
TEST(Priority, OnASlowLinkReducesInTheOrderOfUse) {
  const PlanRequest r = two_ranks("10Kb/s", {}, test::small_llama(4));
  const Plan plan = make_plan(r, test::build(r), "priority");
  EXPECT_EQ(layers_of(of_role(plan, Role::grad_reduce), 4), (std::vector<std::int32_t>{4, -1, 0, 1, 2, 3, 4}));
}

TEST(Priority, GathersInTheOrderOfUseBesideTheReductions) {
  const PlanRequest r = two_ranks("200Mb/s", {.zero = 1}, test::small_llama(4));
  const Plan plan = make_plan(r, test::build(r), "priority");
  EXPECT_EQ(layers_of(of_role(plan, Role::param_gather), 4), (std::vector<std::int32_t>{-1, 0, 1, 2, 3, 4}));
  for (std::size_t i = 0; i < plan.issues.size(); ++i) {
    const Role role = plan.graph.operations[i].role;
    const Queue& queue = plan.classes.front().queues[plan.issues[i].queue];
    if (role == Role::param_gather || role == Role::grad_reduce) {
      EXPECT_EQ(queue.name, role == Role::grad_reduce ? "dp" : "dp gather");
    }
    EXPECT_EQ(queue.kind == QueueKind::extra, role == Role::update);
    EXPECT_FALSE(plan.issues[i].blocking) << describe(plan.graph.operations[i]);
  }
}

// Two nodes of four have slower adapters, and each stage of a pipeline in two directions has a copy of the other's
// layers: the sums over both copies are of classes that would cut by different links.
TEST(Priority, CutsAlikeWhereStagesWithUnequalLinksShareTransfers) {
  ClusterSpec spec = parse_cluster("dgx-a100:4,gpus=2");
  for (const std::int64_t node : {2, 3}) {
    spec.overrides.push_back(
        {.node = node, .level = "nic", .bandwidth = Bandwidth{6.25e9}, .latency = Nanos{6000}, .device = {}});
  }
  Transformer model = test::small_gpt(2);
  model.hidden = 16;
  model.heads = model.kv_heads = 1;
  model.ffn = 64;
  model.vocab = 64;
  const Layout layout{.pp = 2, .vpp = 2, .schedule = PipelineSchedule::dualpipe};
  for (const char* policy : {"priority", "megatron-grad", "ddp"}) {
    for (const bool narrow : {true, false}) {
      const PlanRequest r = test::request(narrow ? model : test::small_gpt(4), spec, layout, 4);
      const std::optional<Violation> found =
          verify_plan(make_plan(r, test::build(r), policy), {.memory_limit = {}, .check_memory = false});
      EXPECT_FALSE(found) << policy << ": " << found->message;
    }
  }
}

// What is urgent: a weight's first reader in the next forward, for all that happens to its gradient before.
TEST(NextUse, IsTheFirstReaderInForward) {
  const PlanRequest r = two_ranks("200Mb/s", {.zero = 1, .clip_grad = 1});
  const StepGraph graph = test::build(r);
  const std::vector<std::int32_t> use = next_use(graph);
  const OpId forward = test::find_op(graph, "stage 0", "layer 2 ffn_in forward");
  for (const char* name : {"layer 2 ffn_in grad_reduce optimizer", "layer 2 ffn_in update optimizer",
                           "layer 2 ffn_in param_gather optimizer"}) {
    EXPECT_EQ(use[test::find_op(graph, "stage 0", name).index()], forward.value) << name;
  }
  // Tied: the lookup comes first, the head last.
  const OpId lookup = test::find_op(graph, "stage 0", "embedding forward");
  EXPECT_EQ(use[test::find_op(graph, "stage 0", "embedding grad_reduce optimizer").index()], lookup.value);
  EXPECT_EQ(use[test::find_op(graph, "stage 0", "grad_norm optimizer").index()], kNeverUsed);
}

}  // namespace
}  // namespace weft
