// The bound against simulated steps: reached where theory says so, never undercut.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "bound/bound.hpp"
#include "plan/memory/place.hpp"
#include "planner/schedule/overlap_receives.hpp"
#include "sim/test_problems.hpp"
#include "sim/test_steps.hpp"

namespace weft::test {
namespace {

TEST(BoundReached, TwoPartsOfAlternatingComputeAndCommunicationTake25) {
  // compute 10 -> communication 10 -> compute 10 -> communication 10 in halves; the next iteration needs the whole of
  // the last communication. The bound for parts of 5 is 25 (bound/bound_test.cpp).
  TestProblem p;
  const auto rank = p.rank();
  std::vector<std::int32_t> a, b, c, d;
  for (int part = 0; part < 2; ++part) a.push_back(p.compute(rank, 5));
  for (int part = 0; part < 2; ++part) c.push_back(p.compute(rank, 5));
  for (int part = 0; part < 2; ++part) b.push_back(p.transfer(rank, {.moving = 5, .use = {{0, 1}}, .queue = 0}));
  for (int part = 0; part < 2; ++part) d.push_back(p.transfer(rank, {.moving = 5, .use = {{0, 1}}, .queue = 0}));
  for (std::size_t part = 0; part < 2; ++part) {
    p.wait(b[part], a[part]);
    p.wait(c[part], b[part]);
    p.wait(d[part], c[part]);
    for (const auto last : d) p.wait(a[part], last, 1);
  }
  EXPECT_EQ(simulate(p.build()).period_ns, 25);
}

TEST(BoundReached, AWholeChainTakes40) {
  TestProblem p;
  const auto rank = p.rank();
  const auto a = p.compute(rank, 10), c = p.compute(rank, 10);
  const auto b = p.transfer(rank, {.moving = 10, .queue = 0}), d = p.transfer(rank, {.moving = 10, .queue = 0});
  p.wait(b, a);
  p.wait(c, b);
  p.wait(d, c);
  p.wait(a, d, 1);
  EXPECT_EQ(simulate(p.build()).period_ns, 40);
}

double bound_ns(const PlanRequest& r) {
  const StepGraph graph = build(r);
  const Cluster cluster(r.cluster);
  return step_bound(graph, CostModel(graph, cluster, r.profile)).seconds * 1e9;
}

// A transfer of 40 beside compute of 100 that it slows down by a quarter: for 40 compute does 32, so 8 are added, a
// fifth of the transfer.
TEST(BoundReached, ComputeBesideATransferTakes108) {
  TestProblem p;
  const auto rank = p.rank(0.25);
  const auto compute = p.compute(rank, 100), transfer = p.transfer(rank, {.moving = 40, .use = {{0, 1}}, .queue = 0});
  p.wait(compute, transfer, 1);
  p.wait(transfer, compute, 1);
  EXPECT_EQ(simulate(p.build()).period_ns, 108);
}

// Data parallelism of two ranks: a ring sends every byte of the gradients once.
struct TwoRanks {
  PlanRequest request;
  double compute_s = 0;  // of a step, all kernels
  double link_s = 0;     // that all gradients take

  TwoRanks(const std::string& nic, std::int64_t micro_batches, double slowdown)
      : request(test::request(small_gpt(6), parse_cluster("local:2,nic=" + nic), {}, micro_batches)) {
    idealize(request);
    compute_s = checked_accounting(simulated(request)).ranks.front().compute_s;
    request.cluster.device.compute_slowdown = slowdown;
    for (const Operation& op : build(request).operations) {
      if (op.role == Role::grad_reduce) link_s += static_cast<double>(op.communication->bytes.value);
    }
    link_s /= request.cluster.levels.front().bandwidth.bytes_per_second;
  }
};

TEST(BoundReached, CountsThatTransfersSlowComputeDown) {
  const TwoRanks step("10Gb/s", 4, 0.25);
  ASSERT_LT(step.link_s, step.compute_s);
  const double expected = step.compute_s + 0.2 * step.link_s;
  EXPECT_NEAR(bound_ns(step.request) * 1e-9 / expected, 1, 1e-4);
}

// Where a micro-batch ends before the next begins, all gradients travel between the backward of the last and the
// forward of the first: 3 of 4 micro-batches compute at another time. In layer order they need not.
TEST(BoundHolds, ForMicroBatchesInTurnAndNotForLayerOrder) {
  const TwoRanks step("500Mb/s", 4, 0);
  const StepGraph graph = build(step.request);
  const Cluster cluster(step.request.cluster);
  const double in_turn = step_bound_in_turn(graph, CostModel(graph, cluster, step.request.profile), 1).seconds;
  const double four_micro_batches = TwoRanks("500Mb/s", 8, 0).compute_s - step.compute_s;
  EXPECT_GE(in_turn, 0.75 * four_micro_batches + step.link_s);
  EXPECT_LE(in_turn, step.compute_s + step.link_s);
  for (const std::string_view policy : {"serial", "ddp", "fsdp", "priority", "centauri"}) {
    EXPECT_GE(simulated(step.request, policy).period_ns * 1e-9, in_turn) << policy;
  }
  Overlap overlap = decide_overlap(step.request, graph, "priority");
  overlap.order.by_layers = {.layers = 1};
  const Plan plan = make_whole_plan(step.request, SharedGraph(graph), "priority", overlap).plan();
  EXPECT_LT(simulated(plan, step.request.profile).period_ns * 1e-9, in_turn);
  EXPECT_EQ(step_bound_in_turn(graph, CostModel(graph, cluster, step.request.profile), 2).seconds, 0);
}

TEST(BoundReached, OneDeviceTakesTheSumOfItsKernels) {
  // Nothing to overlap. What is left is rounding: updates are merged into one kernel, each parameter's own time was
  // rounded to a nanosecond.
  Transformer without_padding = small_moe(4);  // a plan that cuts experts by tokens computes none of it
  without_padding.experts->capacity_factor = 0;
  for (const Transformer& model : {small_gpt(4), small_llama(4), without_padding}) {
    PlanRequest r = request(model, parse_cluster("local:1"), {.clip_grad = 1}, 3);
    idealize(r);
    const double step = simulated(r).period_ns, bound = bound_ns(r);
    EXPECT_LE(bound, step);
    EXPECT_GE(bound, step - 2.0 * static_cast<double>(build(r).operations.size())) << model.name;
  }
}

TEST(BoundHolds, WhereARingSparesTheInnerLinks) {
  // Eight ranks in two nodes with slow links inside. Reducing inside the node first moves 2 * 3/4 of the buffer over
  // them; the ring only 2 * 7/8 * 3/4 (one in four of its edges leaves the node), and is what the plan uses.
  const PlanRequest r = request(small_gpt(2), parse_cluster("dgx-a100:2,gpus=4,nvlink=10MB/s"), {}, 1);
  const double step = simulated(r).period_ns, bound = bound_ns(r);
  EXPECT_LE(bound, step);
  EXPECT_GE(bound, 0.95 * step);  // the ring is nearly all there is
}

std::vector<ClusterSpec> clusters() {
  return {parse_cluster("dgx-a100:2"), parse_cluster("p3dn:2"), uneven_nics(), parse_cluster("local:16,nic=1Gb/s"),
          parse_cluster("dgx1-v100:2")};
}

class BoundMatrix : public testing::TestWithParam<int> {};

// Every layout with two stages of ZeRO; those, clusters and switches take their turns. As the serial policy issues it,
// with transfers beside compute at random, and with all overlap that `fsdp` and early receives give; with real fixed
// costs, and without any (the bound counts few of them).
TEST_P(BoundMatrix, HoldsForEveryLayout) {
  const std::vector<Transformer> models{small_gpt(), small_llama(), small_moe()};
  const Transformer& model = models[static_cast<std::size_t>(GetParam())];
  std::mt19937 random(static_cast<std::uint32_t>(GetParam()) + 11);
  int turn = GetParam(), held = 0;
  for (const auto& [name, base] : layouts()) {
    if (base.ep > 1 && !model.experts) continue;
    for (int half = 0; half < 2; ++half, ++turn) {
      Layout layout = base;
      layout.zero = 2 * half + turn / 2 % 2;
      layout.recompute = static_cast<Recompute>(turn % 3);
      if (turn % 6 == 2) layout.recompute_layers = {1};
      layout.clip_grad = turn % 2;
      const ClusterSpec cluster = clusters()[turn / 2 % 5];
      PlanRequest r = request(model, cluster, layout, layout.pp > 4 ? 3 : turn % 4 == 3 ? 1 : 4);
      if (r.layout.vpp > 1) r.layout.global_batch = 4 * r.layout.dp;
      if (turn % 3 == 0) idealize(r);
      SCOPED_TRACE(fmt::format("{}, {}, zero {}, {}, turn {}", model.name, name, layout.zero, cluster.name, turn));
      Plan plan = serial(r);
      if (turn % 4 != 0) {
        for (std::size_t i = 0; i < plan.issues.size(); ++i) {
          const auto& transfer = plan.graph.operations[i].communication;
          const bool receives = transfer && transfer->collective == Collective::send_recv && !transfer->sends;
          if (transfer && !receives && random() % 4 != 0) plan.issues[i].blocking = false;
        }
        place_values(plan);
      }
      Plan sharded = fsdp(r, turn % 3);
      overlap_receives(sharded);
      place_values(sharded);
      const double bound = bound_ns(r);
      EXPECT_GT(bound, 0);
      for (const Plan& p : {plan, sharded}) {
        const Timeline timeline = simulated(p, r.profile);
        checked_accounting(timeline);
        // A transfer's time is rounded to whole nanoseconds, its work in the bound is not.
        const auto rounding = 0.5 * static_cast<double>(timeline.operations.size());
        EXPECT_LE(bound, timeline.period_ns + rounding) << p.policy;
      }
      ++held;
    }
  }
  EXPECT_EQ(held, 2 * (model.experts ? 22 : 16));
}

INSTANTIATE_TEST_SUITE_P(Models, BoundMatrix, testing::Range(0, 3));

}  // namespace
}  // namespace weft::test
