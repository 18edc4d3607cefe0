// Explanations of whole plans: they add up to the accounting, folded or not, for every policy, layout and cluster.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>

#include "base/test_effort.hpp"
#include "sim/test_steps.hpp"
#include "timeline/explain.hpp"

namespace weft::test {
namespace {

// Each operation of the plan is a kind.
ExplainedOperations operations_of(const Plan& plan, const CostModel& cost) {
  const WholePlan whole(plan);
  const SimProblem problem = sim_problem(whole, cost);
  ExplainedOperations operations;
  for (std::size_t i = 0; i < whole.unfolded().instances().size(); ++i) {
    operations.kind.push_back(whole.unfolded().instances()[i].operation.value);
    operations.fixed.push_back(problem.costs[problem.operations[i].cost].fixed);
  }
  return operations;
}

using Explanation = std::vector<std::vector<ExplainedTransfer>>;

Explanation explained(const Timeline& timeline, const ExplainedOperations& operations) {
  SpanIndex index(timeline);
  return explain(timeline, index, operations);
}

void expect_adds_up(const Timeline& timeline, const Explanation& explanation) {
  const Accounting accounting = account(timeline);
  ASSERT_EQ(explanation.size(), accounting.ranks.size());
  for (std::size_t r = 0; r < explanation.size(); ++r) {
    const RankAccount& expected = accounting.ranks[r];
    double exposed = 0, communicating = 0;
    for (const ExplainedTransfer& t : explanation[r]) {
      double reasons = 0, behind = 0;
      for (const Exposure& e : t.exposures) reasons += e.seconds;
      for (const HiddenBehind& h : t.hidden_behind) behind += h.seconds;
      EXPECT_NEAR(reasons, t.exposed_s, 1e-12);
      EXPECT_NEAR(behind, t.hidden_s, 1e-12);
      EXPECT_NEAR(t.busy_s, t.hidden_s + t.exposed_s + t.beside_s, 1e-12);
      EXPECT_GE(t.beside_s, 0);
      exposed += t.exposed_s;
      communicating += t.exposed_s + t.hidden_s;
    }
    EXPECT_NEAR(exposed, expected.exposed_s, 1e-12) << "rank " << r;
    EXPECT_NEAR(communicating, expected.comm_s, 1e-12) << "rank " << r;
  }
}

void expect_same(const Explanation& a, const Explanation& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t r = 0; r < a.size(); ++r) {
    ASSERT_EQ(a[r].size(), b[r].size());
    for (std::size_t i = 0; i < a[r].size(); ++i) {
      const ExplainedTransfer &x = a[r][i], &y = b[r][i];
      EXPECT_EQ(std::tuple(x.kind, x.instances, x.bytes, x.busy_s, x.hidden_s, x.exposed_s),
                std::tuple(y.kind, y.instances, y.bytes, y.busy_s, y.hidden_s, y.exposed_s));
      ASSERT_EQ(x.exposures.size(), y.exposures.size());
      for (std::size_t k = 0; k < x.exposures.size(); ++k) {
        const Exposure &p = x.exposures[k], &q = y.exposures[k];
        EXPECT_EQ(std::tuple(p.reason, p.cause, p.cause_rank, p.waiting, p.seconds),
                  std::tuple(q.reason, q.cause, q.cause_rank, q.waiting, q.seconds));
      }
      ASSERT_EQ(x.hidden_behind.size(), y.hidden_behind.size());
      for (std::size_t k = 0; k < x.hidden_behind.size(); ++k) {
        EXPECT_EQ(x.hidden_behind[k].kind, y.hidden_behind[k].kind);
        EXPECT_EQ(x.hidden_behind[k].seconds, y.hidden_behind[k].seconds);
      }
    }
  }
}

using Reasons = std::map<ExposureReason, double>;

void check(PlanRequest r, const std::string& policy, Reasons& reasons) {
  const Cluster cluster(r.cluster);
  // For policies that search; briefly, as any plan will do.
  r.search.budget_s = 0.01;
  r.search.step_seconds = [&](const WholePlan& made) {
    const CostModel cost(made.plan().graph, cluster, r.profile);
    return simulate_plan(made, cost, {.names = false}).period_ns * 1e-9;
  };
  const Plan plan = make_plan(r, build(r), policy);
  const CostModel cost(plan.graph, cluster, r.profile);
  const ExplainedOperations operations = operations_of(plan, cost);
  const Timeline timeline = simulate_plan(WholePlan(plan), cost);
  const Explanation explanation = explained(timeline, operations);
  expect_adds_up(timeline, explanation);
  expect_same(explanation, explained(expanded(timeline), operations));
  for (const auto& rank : explanation) {
    for (const ExplainedTransfer& t : rank) {
      for (const Exposure& e : t.exposures) reasons[e.reason] += e.seconds;
      if (!plan.issues[static_cast<std::size_t>(t.kind)].blocking) continue;
      // Nothing of the compute queue runs beside what blocks it.
      for (const HiddenBehind& h : t.hidden_behind) {
        EXPECT_TRUE(h.kind < 0 || plan.issues[static_cast<std::size_t>(h.kind)].queue != kComputeQueue);
      }
    }
  }
}

// A shared adapter, slow links, and transfers and compute that slow each other.
ClusterSpec slow_links() {
  ClusterSpec spec = parse_cluster("p3dn:4,gpus=4,nvlink=2GB/s,nic=8Gb/s");
  spec.device.compute_slowdown = 0.25;
  spec.device.transfer_slowdown = 0.4;
  return spec;
}

TEST(ExplainedPlans, AddUpForEveryPolicyLayoutAndCluster) {
  std::mt19937 random(5);
  Sample sample;
  Reasons reasons;
  const std::vector<Transformer> models{small_gpt(), small_llama(), small_moe(), small_mla()};
  for (const std::string& policy : policy_names()) {
    for (const ClusterSpec& cluster : {parse_cluster("dgx-a100:2"), slow_links(), uneven_nics()}) {
      for (const NamedLayout& named : layouts()) {
        if (!sample.takes()) continue;
        Layout layout = named.layout;
        layout.zero = static_cast<int>(random() % 4);
        layout.clip_grad = random() % 2 == 0 ? 1 : 0;
        const Transformer& model = layout.ep > 1 ? models[2] : models[random() % 4];
        SCOPED_TRACE(policy + ", " + cluster.name + ", " + named.name + ", " + model.name);
        check(request(model, cluster, layout, 8), policy, reasons);
        if (HasFailure()) return;
      }
    }
  }
  // Or some reason would not have been looked for.
  for (int reason = 0; reason < kExposureReasons; ++reason) {
    EXPECT_GT(reasons[static_cast<ExposureReason>(reason)], 0) << name_of(static_cast<ExposureReason>(reason));
  }
}

// Tensor parallelism in serial order. In forward the next operation needs the sum, and nothing else is ready. In
// backward the sum follows the gradient of a product's input, while that of its weights needs neither: it is ordered
// before the sum, which then comes late, or after it, and could have run beside it.
TEST(ExplainedPlans, TensorParallelForwardWaitsForDataAndBackwardForTheOrder) {
  PlanRequest r = request(small_gpt(), parse_cluster("dgx-a100:1,gpus=4"), {.tp = 4, .etp = 4}, 1);
  idealize(r);
  const Plan plan = serial(r);
  const Cluster cluster(plan.cluster);
  const CostModel cost(plan.graph, cluster, r.profile);
  const Explanation explanation = explained(simulate_plan(WholePlan(plan), cost), operations_of(plan, cost));
  int forward = 0, backward = 0;
  for (const ExplainedTransfer& t : explanation.at(0)) {
    const Operation& op = plan.graph.operations[static_cast<std::size_t>(t.kind)];
    if (op.layer < 0) continue;
    for (const Exposure& e : t.exposures) {
      const bool order = e.reason == ExposureReason::held_back || e.reason == ExposureReason::issue_order;
      EXPECT_TRUE(order || e.reason == ExposureReason::dependency) << describe(op) << ": " << name_of(e.reason);
      const Operation& cause = plan.graph.operations.at(static_cast<std::size_t>(e.cause));
      EXPECT_EQ(cause.layer, op.layer);
      if (op.phase == Phase::forward) {
        EXPECT_FALSE(order) << describe(op);
        ++forward;
      } else if (order) {
        EXPECT_EQ(cause.phase, Phase::weight_grad) << describe(op);
        ++backward;
      }
    }
  }
  EXPECT_EQ(forward, 16);  // eight layers, two sums in each
  EXPECT_EQ(backward, 16);
}

}  // namespace
}  // namespace weft::test
