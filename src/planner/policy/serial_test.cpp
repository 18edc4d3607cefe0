#include "planner/policy/serial.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "cost/cost_model.hpp"
#include "plan/unfold.hpp"
#include "planner/test_plans.hpp"

namespace weft {
namespace {

bool is_send(const Operation& op) {
  return op.communication && op.communication->collective == Collective::send_recv && op.communication->sends;
}

TEST(Serial, BlocksOnEveryTransferButSends) {
  for (const auto& [name, layout] : test::layouts()) {
    SCOPED_TRACE(name);
    const Plan plan = test::serial(test::request(test::small_moe(), parse_cluster("dgx-a100:2"), layout));
    for (std::size_t i = 0; i < plan.issues.size(); ++i) {
      const Operation& op = plan.graph.operations[i];
      EXPECT_EQ(plan.issues[i].blocking, op.is_transfer() && !is_send(op)) << describe(op);
      EXPECT_EQ(plan.issues[i].queue == kComputeQueue, !op.is_transfer()) << describe(op);
    }
  }
}

TEST(Serial, RunsNothingBesideComputeWithoutAPipeline) {
  const Plan plan = test::serial(test::small_gpt(2), "dgx-a100:1", {.tp = 2, .zero = 2, .clip_grad = 1});
  const Unfolded u(plan);
  for (const Instance& i : u.instances()) EXPECT_GE(i.chain_position, 0) << describe(plan, i);
}

TEST(Serial, ReducesInOneBucketAfterTheLastBackward) {
  const Plan plan = test::serial(test::small_gpt(4), "local:4", {.pp = 2});
  for (const ClassPlan& c : plan.classes) {
    // forward, backward, update; the update block comes last and holds the only reduction of data parallelism.
    ASSERT_EQ(c.blocks.size(), 3u);
    EXPECT_EQ(c.order.back(), (IssueSlot{BlockId{2}, kOncePerStep}));
    int reductions = 0, updates = 0;
    for (const OpId id : block_of(c, BlockKind::update).operations) {
      reductions += plan.graph.op(id).role == Role::grad_reduce ? 1 : 0;
      updates += plan.graph.op(id).role == Role::update ? 1 : 0;
    }
    EXPECT_EQ(reductions, 1);
    EXPECT_EQ(updates, 1);
  }
}

TEST(Serial, GivesEachGroupAndDirectionAQueueOfItsOwn) {
  const Plan plan =
      test::serial(test::small_moe(4), "dgx-a100:1", {.tp = 2, .pp = 2, .ep = 2, .etp = 2, .clip_grad = 1});
  std::vector<std::string> names;
  for (const Queue& queue : plan.classes[0].queues) names.push_back(queue.name);
  std::sort(names.begin(), names.end());
  // Stage 0 sends forward and receives backward only; ep 2 * etp 2 leaves no expert data parallelism.
  EXPECT_EQ(names, (std::vector<std::string>{"compute", "dp", "ep", "etp", "norm", "pp backward recv",
                                             "pp forward send", "tp"}));
}

// Ring or tree, whichever the cost model finds faster alone, recorded in the plan: few bytes over many ranks go by
// tree, whose steps grow with the logarithm; many bytes by ring.
TEST(Serial, RecordsTheFasterAlgorithmOfEachReduction) {
  const PlanRequest request = test::request(test::small_gpt(2), parse_cluster("dgx-a100:4"), {.clip_grad = 1});
  const Plan plan = test::serial(request);
  const Cluster cluster(request.cluster);
  const CostModel cost(plan.graph, cluster, request.profile);
  int reductions = 0;
  for (const Operation& op : plan.graph.operations) {
    if (!op.communication || op.communication->collective != Collective::all_reduce) continue;
    ++reductions;
    Operation other = op;
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::tree}) {
      other.communication->algorithm = algorithm;
      EXPECT_LE(cost.alone(op), cost.alone(other)) << describe(op);
    }
  }
  EXPECT_GT(reductions, 0);
}

TEST(Serial, KeepsTheRequestAndNamesItself) {
  const PlanRequest request = test::request(test::small_gpt(2), parse_cluster("local:2"), {});
  const Plan plan = test::serial(request);
  EXPECT_EQ(plan.policy, "serial");
  EXPECT_EQ(plan.model, request.model);
  EXPECT_EQ(plan.cluster, request.cluster);
  EXPECT_EQ(plan.layout, request.layout);
}

TEST(MakePlan, OfAnUnknownPolicyNamesTheNearest) {
  const PlanRequest request = test::request(test::small_gpt(2), parse_cluster("local:2"), {});
  try {
    make_plan(request, test::build(request), "seriall");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "--policy 'seriall': there is no such policy; did you mean 'serial'?");
  }
}

}  // namespace
}  // namespace weft
