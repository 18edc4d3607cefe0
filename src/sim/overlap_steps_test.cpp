// Steps of the overlapping policies: exact where a recursion over one rank's operations gives them, ordered as physics
// orders them elsewhere.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/test_effort.hpp"
#include "bound/bound.hpp"
#include "planner/overlap.hpp"
#include "sim/test_problems.hpp"
#include "sim/test_steps.hpp"

namespace weft::test {
namespace {

// Two ranks, one link, one micro-batch, every parameter a bucket of its own; compute and transfers do not slow each
// other.
PlanRequest two_ranks(const std::string& nic, Nanos latency, int zero) {
  PlanRequest r = request(small_gpt(3), parse_cluster("local:2,nic=" + nic), {.seq = 64, .zero = zero}, 1);
  for (LevelSpec& level : r.cluster.levels) level.latency = latency;
  r.cluster.device.compute_slowdown = r.cluster.device.transfer_slowdown = 0;
  r.options = {.bucket_parameters = 1, .bucket_mib = 0};
  return r;
}

// A step by hand. Compute runs in the graph's order. The link takes one transfer after the other: two ranks reduce and
// scatter (or gather) B bytes in one message of B / 2 each way; for an all-reduce they exchange all B bytes at once, as
// many as in two halves, with one latency less (recursive doubling).
struct ByHand {
  const PlanRequest& r;
  double bytes_per_ns;
  Nanos latency;
  bool reductions_overlap = false, gathers_overlap = false;

  double message(Bytes bytes, int halves) const {
    return static_cast<double>(latency.value) + halves * static_cast<double>(bytes.value) / 2 / bytes_per_ns;
  }

  double step_ns() const {
    const StepGraph graph = build(r);
    const Cluster cluster(r.cluster);
    const CostModel cost(graph, cluster, r.profile);
    std::map<ValueId, double> weight_at;  // since the update ended
    double link = 0, now = 0;
    for (const Operation& op : graph.operations) {
      if (op.role != Role::param_gather) continue;
      link += message(op.communication->bytes, 1);
      weight_at[op.writes.front().value] = link;
    }
    if (!gathers_overlap) now = link;
    std::map<ValueId, double> gradient_at;
    for (const Operation& op : graph.operations) {
      if (!op.per_micro_batch) continue;
      for (const Read& read : op.reads) {
        if (read.distance == 1 && weight_at.contains(read.value)) now = std::max(now, weight_at[read.value]);
      }
      now += static_cast<double>(cost.compute(op).value);
      for (const Write& write : op.writes) gradient_at[write.value] = now;
    }
    std::vector<std::pair<double, Bytes>> reductions;  // ready, bytes
    for (const Operation& op : graph.operations) {
      if (op.role == Role::grad_reduce) {
        const double ready = reductions_overlap ? gradient_at.at(op.reads.front().value) : now;
        reductions.emplace_back(ready, op.communication->bytes);
      }
    }
    std::stable_sort(reductions.begin(), reductions.end(), [](auto& a, auto& b) { return a.first < b.first; });
    for (const auto& [ready, bytes] : reductions) {
      link = std::max(link, ready) + message(bytes, r.layout.zero == 0 ? 2 : 1);
    }
    return std::max(link, now) + update_ns();
  }

  // One kernel updates all parameters.
  double update_ns() const {
    const Plan plan = serial(r);
    const Cluster cluster(r.cluster);
    const CostModel cost(plan.graph, cluster, r.profile);
    double sum = 0;
    for (const Operation& op : plan.graph.operations) {
      if (op.role == Role::update) sum += static_cast<double>(cost.compute(op).value);
    }
    return sum;
  }
};

// A step of two tensor-parallel ranks by hand, as Megatron issues it: compute in the graph's order, one transfer at a
// time. Transfers are waited for on the spot but those of the backward of a column-parallel linear: its input is
// gathered again from the moment at which its dgrad begins and is needed by its wgrad; dgrad's result is reduced from
// the moment at which it is there and is needed by the norm before.
double megatron_tensor_parallel_ns(const PlanRequest& r, double bytes_per_ns) {
  const ByHand by_hand{r, bytes_per_ns, Nanos{0}};
  const StepGraph graph = build(r);
  const Cluster cluster(r.cluster);
  const CostModel cost(graph, cluster, r.profile);
  std::map<ValueId, double> there;
  double now = 0, link = 0;
  for (const Operation& op : graph.operations) {
    if (op.role == Role::update) continue;
    double ready = 0;
    for (const Read& read : op.reads) ready = std::max(ready, read.distance == 0 ? there[read.value] : 0.0);
    if (!op.communication) {
      now = std::max(now, ready) + static_cast<double>(cost.compute(op).value);
      for (const Write& write : op.writes) there[write.value] = now;
      continue;
    }
    const bool column_parallel =
        op.role == Role::attention_gather || op.role == Role::ffn_gather || op.role == Role::head_gather;
    const bool gathers_again = column_parallel && op.phase == Phase::weight_grad;
    const bool reduces = column_parallel && op.phase == Phase::input_grad;
    const double begin = std::max(link, reduces ? ready : now);
    link = begin +
           by_hand.message(op.communication->bytes, op.communication->collective == Collective::all_reduce ? 2 : 1);
    for (const Write& write : op.writes) there[write.value] = link;
    if (!gathers_again && !reduces) now = link;
  }
  return std::max(now, link) + by_hand.update_ns();
}

TEST(Megatron, HidesItsTensorParallelTrafficBehindTheProductsBesideIt) {
  struct Speed {
    const char* nic;
    double bytes_per_ns;
  };
  for (const Speed speed : {Speed{"100Gb/s", 12.5}, Speed{"10Gb/s", 1.25}, Speed{"1Gb/s", 0.125}}) {
    for (const bool sequence_parallel : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, sequence parallel: {}", speed.nic, sequence_parallel));
      const Layout layout{.tp = 2, .seq = 64, .sequence_parallel = sequence_parallel};
      PlanRequest r = request(small_gpt(3), parse_cluster(fmt::format("local:2,nic={}", speed.nic)), layout, 1);
      for (LevelSpec& level : r.cluster.levels) level.latency = Nanos{0};
      r.cluster.device.compute_slowdown = r.cluster.device.transfer_slowdown = 0;
      const auto rounding = 2 * static_cast<double>(build(r).operations.size());
      EXPECT_NEAR(simulated(r, "megatron-dist").period_ns, megatron_tensor_parallel_ns(r, speed.bytes_per_ns),
                  rounding);
    }
  }
}

struct Link {
  const char* nic;
  double bytes_per_ns;
  Nanos latency;
};

class TwoRanks : public testing::TestWithParam<Link> {};

TEST_P(TwoRanks, TakeTheStepsThatTheirTransfersAllow) {
  const Link link = GetParam();
  for (const int zero : {0, 1}) {
    SCOPED_TRACE(fmt::format("{}, zero {}", link.nic, zero));
    const PlanRequest r = two_ranks(link.nic, link.latency, zero);
    const auto rounding = static_cast<double>(build(r).operations.size());
    const ByHand grad{r, link.bytes_per_ns, link.latency, true, false};
    const ByHand param{r, link.bytes_per_ns, link.latency, true, true};
    // ddp gathers in one message after the update: as many latencies fewer.
    std::int64_t gathers = 0;
    for (const Operation& op : build(r).operations) gathers += op.role == Role::param_gather ? 1 : 0;
    const auto saved = static_cast<double>((link.latency * std::max<std::int64_t>(0, gathers - 1)).value);
    EXPECT_NEAR(simulated(r, "ddp").period_ns, grad.step_ns() - saved, rounding);
    EXPECT_NEAR(simulated(r, "megatron-param").period_ns, param.step_ns(), rounding);
  }
}

// From links that hide everything but the ends to links that hide nothing but the ends.
INSTANTIATE_TEST_SUITE_P(Links, TwoRanks,
                         testing::Values(Link{"100Gb/s", 12.5, Nanos{0}}, Link{"100Gb/s", 12.5, Nanos{2'000}},
                                         Link{"10Gb/s", 1.25, Nanos{0}}, Link{"10Gb/s", 1.25, Nanos{50'000}},
                                         Link{"1Gb/s", 0.125, Nanos{0}}, Link{"100Mb/s", 0.0125, Nanos{50'000}}));

// Without latency and interference a bucket that starts earlier ends no later. Only data parallelism: nothing else
// uses the links. A transfer's time is rounded to whole nanoseconds.
TEST(Overlap, NeverLosesWhereNothingElseUsesTheLinks) {
  Sample sample;
  for (const Transformer& model : {small_gpt(4), small_llama(4), small_moe(4)}) {
    for (const ClusterSpec& cluster :
         {parse_cluster("dgx-a100:2"), uneven_nics(), parse_cluster("local:16,nic=1Gb/s")}) {
      for (int zero = 0; zero <= 3; ++zero) {
        if (!sample.takes()) continue;
        SCOPED_TRACE(fmt::format("{} on {}, zero {}", model.name, cluster.name, zero));
        PlanRequest r = request(model, cluster, {.zero = zero, .clip_grad = static_cast<double>(zero % 2)}, 2);
        r.options = {.bucket_parameters = 20'000, .bucket_mib = 0.05};
        idealize(r);
        std::map<std::string, double> step;
        for (const std::string& policy : policy_names()) step[policy] = simulated(r, policy).period_ns;
        const double rounding = static_cast<double>(build(r).operations.size());
        EXPECT_LE(step["ddp"], step["serial"] + rounding);
        EXPECT_LE(step["priority"], step["serial"] + rounding);
        for (const auto& [policy, time] : step) EXPECT_LE(step["weft"], time) << policy;
        EXPECT_NEAR(step["megatron-dist"], step["serial"], rounding);
        EXPECT_LE(step["megatron-grad"], step["megatron-dist"] + rounding);
        EXPECT_LE(step["megatron-param"], step["megatron-grad"] + rounding);
        if (zero < 2) {
          EXPECT_LT(step["ddp"], step["serial"]);
          EXPECT_LT(step["megatron-grad"], step["serial"]);
        }
        if (zero == 1 || zero == 2) {
          EXPECT_LT(step["megatron-param"], step["megatron-grad"]);
        }
      }
    }
  }
}

TEST(Overlap, StaysAboveTheBoundInEveryLayout) {
  int turn = 0;
  for (const auto& [name, base] : layouts()) {
    Layout layout = base;
    layout.zero = turn % 3;
    layout.clip_grad = turn / 3 % 2;
    PlanRequest r =
        request(small_moe(), turn % 2 == 0 ? uneven_nics() : parse_cluster("local:16,nic=1Gb/s"), layout, 4);
    r.options = {.bucket_parameters = 30'000, .bucket_mib = 0.1};
    if (turn % 4 == 0) idealize(r);
    SCOPED_TRACE(fmt::format("{}, zero {}, {}", name, layout.zero, r.cluster.name));
    const StepGraph graph = build(r);
    const Cluster cluster(r.cluster);
    const double bound = step_bound(graph, CostModel(graph, cluster, r.profile)).seconds * 1e9;
    for (const char* policy : {"ddp", "megatron-param"}) {
      const Timeline timeline = simulated(r, policy);
      checked_accounting(timeline);
      EXPECT_LE(bound, timeline.period_ns + 0.5 * static_cast<double>(timeline.operations.size())) << policy;
    }
    ++turn;
  }
}

// Compute 10, all-to-all 10, compute 20, all-to-all 10, compute 10; a reduction of 8 over the same link, ready when the
// first all-to-all is. Side by side the two share the link: at 26 the reduction is through, the all-to-all has 2 left,
// and all that follows is 8 late. In the gap the reduction runs under the second compute, and nobody waits.
TEST(ReductionsInGaps, DoNotDelayAllToAlls) {
  const auto period = [](bool in_gap) {
    TestProblem p;
    const auto rank = p.rank();
    const auto a = p.compute(rank, 10), b = p.compute(rank, 20), c = p.compute(rank, 10);
    const auto first = p.transfer(rank, {.moving = 10, .use = {{0, 1}}, .queue = 0});
    const auto second = p.transfer(rank, {.moving = 10, .use = {{0, 1}}, .queue = 0});
    const auto reduction = p.transfer(rank, {.moving = 8, .use = {{0, 1}}, .queue = 1});
    p.wait(first, a);
    p.wait(b, first);
    p.wait(second, b);
    p.wait(c, second);
    p.wait(reduction, a);
    p.wait(a, reduction, 1);
    if (in_gap) p.wait(reduction, first);
    return simulate(p.build()).period_ns;
  };
  EXPECT_EQ(period(false), 68);
  EXPECT_EQ(period(true), 60);
}

// What is not simulated because of it could not have won.
TEST(LeastStep, IsNoLongerThanAnySimulatedStep) {
  const std::vector<Layout> layouts{{.dp = 8, .ep = 8, .micro_batch = 2, .seq = 64},
                                    {.dp = 4, .pp = 2, .ep = 4, .micro_batch = 2, .seq = 64},
                                    {.tp = 2, .dp = 4, .ep = 4, .etp = 2, .seq = 64},
                                    {.tp = 2, .dp = 2, .pp = 2, .ep = 2, .etp = 2, .seq = 64, .zero = 1}};
  Sample sample;
  for (const Layout& layout : layouts) {
    for (const Transformer& model : {small_moe(4), small_mla(4)}) {
      for (const char* cluster : {"dgx-a100:2,gpus=4,nic=10Gb/s", "local:8,nic=1Gb/s"}) {
        if (!sample.takes()) continue;
        PlanRequest r = searching(request(model, parse_cluster(cluster), layout, 4));
        const SharedGraph graph = build(r);
        for (const std::string& policy : policy_names()) {
          const Overlap overlap = decide_overlap(r, graph, policy);
          const WholePlan made = make_whole_plan(r, graph, policy, overlap);
          EXPECT_LE(least_step_seconds(r, graph, overlap), r.search.step_seconds(made) * (1 + 1e-9))
              << model.name << " " << cluster << " tp " << layout.tp << " pp " << layout.pp << " " << policy;
        }
      }
    }
  }
}

// A pipeline of many micro-batches: the search looks at few of them, and is still no slower than any named policy. The
// period alone is that of the timeline.
TEST(SearchOfLongSteps, IsNoSlowerThanAnyPolicy) {
  for (const Layout& layout :
       {Layout{.dp = 4, .pp = 2, .ep = 4, .micro_batch = 2, .seq = 64}, Layout{.tp = 2, .dp = 2, .pp = 2, .seq = 64}}) {
    PlanRequest r = searching(request(layout.ep > 1 ? small_moe(4) : small_gpt(4),
                                      parse_cluster("dgx-a100:2,gpus=4,nic=10Gb/s"), layout, 40));
    const SharedGraph graph = build(r);
    const Cluster cluster(r.cluster);
    const auto step = [&](const std::string& policy) {
      const WholePlan made = make_whole_plan(r, graph, policy, decide_overlap(r, graph, policy));
      const CostModel cost(made.plan().graph, cluster, r.profile);
      const double ns = simulate_plan(made, cost).period_ns;
      EXPECT_EQ(simulated_period_ns(made, cost), ns);
      return ns;
    };
    const double found = step("weft");
    for (const std::string& policy : policy_names()) EXPECT_LE(found, step(policy) * (1 + 1e-9)) << policy;
  }
}

}  // namespace
}  // namespace weft::test
