// Steps of whole plans whose time has a closed form.
#include "sim/simulate_plan.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "sim/test_steps.hpp"

namespace weft::test {
namespace {

// GPT on `ranks` machines with 1 Gb/s links and 50 us a message; gradients in fp32.
PlanRequest data_parallel(std::int64_t ranks) {
  return request(small_gpt(2), parse_cluster(fmt::format("local:{},nic=1Gb/s", ranks)), {}, 1);
}

// The fastest all_reduce of n moves 2 (n-1) / n of the buffer (Patarasuk and Yuan 2009), in parts of which each hides
// the latency of the next: all but the first. The buffer: a layer has 12 h^2 + 13 h parameters, the embedding 512 rows
// (500 padded to a multiple of 128), positions 64, the last norm 2 h.
constexpr std::int64_t kHidden = 64;
constexpr std::int64_t kParameters =
    2 * (12 * kHidden * kHidden + 13 * kHidden) + 512 * kHidden + 64 * kHidden + 2 * kHidden;

Nanos reduction_time(std::int64_t n) {
  const auto ranks = static_cast<double>(n);
  return Nanos{50'000} + nanos_from_seconds(2 * (ranks - 1) / ranks * 4.0 * kParameters / 125e6);
}

// Where n does not divide the buffer, each of the 2 (n-1) pieces that a rank sends, in up to 16 parts, may have an
// element more than the average. Otherwise a nanosecond for the rounding of latency and bytes.
double rounding(std::int64_t n) {
  return kParameters % n == 0 ? 1.1e-9 : static_cast<double>(2 * (n - 1) * 16 * 4) / 125e6;
}

TEST(SimulatedStep, OfDataParallelismIsComputeAndOneAllReduce) {
  const Accounting alone = checked_accounting(simulated(data_parallel(1)));
  for (std::int64_t n = 2; n <= 8; ++n) {
    const Timeline timeline = simulated(data_parallel(n));
    const RankAccount account = checked_accounting(timeline).ranks.at(0);
    const double reduction = seconds(reduction_time(n));
    EXPECT_NEAR(account.exposed_by[TrafficKind::dp_grad], reduction, rounding(n)) << n << " ranks";
    EXPECT_NEAR(account.comm_s, reduction, rounding(n));
    EXPECT_NEAR(account.step_s, alone.ranks[0].step_s + reduction, rounding(n));
    EXPECT_NEAR(account.bubble_s + account.idle_s + account.slowdown_s, 0, 1e-12);
  }
}

// Compute waits for the one reduction on the spot, so its links have been idle since the step before.
TEST(SimulatedStep, HasALibrarysCollectivesAsTheyAreAfterAPause) {
  PlanRequest request = data_parallel(2);
  request.cluster.execution.collectives = CollectiveMaker::library;
  const double alone = checked_accounting(simulated(data_parallel(1))).ranks.at(0).step_s;
  const auto step_with = [&](Nanos after_pause) {
    request.profile.library.measured[{Collective::all_reduce, 2}] = {
        {Bytes{4 * kParameters}, Nanos{10'000'000}, after_pause}};
    return checked_accounting(simulated(request)).ranks.at(0).step_s;
  };
  EXPECT_NEAR(step_with(Nanos{0}), alone + 0.010, 1e-9);
  EXPECT_NEAR(step_with(Nanos{15'000'000}), alone + 0.015, 1e-9);
}

TEST(SimulatedStep, DependsOnTheRanksOfAClassOnlyThroughTheirReduction) {
  // The same class with ever more ranks: as much to simulate, the same compute.
  const Timeline two = simulated(data_parallel(2));
  for (const std::int64_t n : {4, 16, 64}) {
    const Timeline many = simulated(data_parallel(n));
    ASSERT_EQ(many.ranks.size(), 1u);
    EXPECT_EQ(many.ranks[0].ranks, n);
    EXPECT_EQ(many.operations.size(), two.operations.size());
    EXPECT_EQ(checked_accounting(many).ranks[0].compute_s, checked_accounting(two).ranks[0].compute_s);
  }
}

TEST(SimulatedStep, OfManyEqualNodesIsThatOfOneAndTheReductionBetweenThem) {
  // Tensor parallelism inside every node, data parallelism between them.
  const auto nodes = [](std::int64_t count) {
    PlanRequest r = request(small_gpt(4), parse_cluster(fmt::format("dgx-a100:{},gpus=4", count)), {.tp = 4}, 2);
    issue_at_once(r);
    return r;
  };
  const RankAccount one = checked_accounting(simulated(nodes(1))).ranks.at(0);
  for (const std::int64_t count : {2, 4, 8}) {
    const RankAccount many = checked_accounting(simulated(nodes(count))).ranks.at(0);
    const double reduction = many.exposed_by[TrafficKind::dp_grad];
    EXPECT_GT(reduction, 0);
    EXPECT_NEAR(many.step_s - reduction, one.step_s, 2e-9) << count << " nodes";
  }
}

struct Stages {
  PipelineSchedule schedule;
  std::int64_t chunks;
};

class SimulatedPipeline : public testing::TestWithParam<Stages> {};

// p stages of equal layers, links that cost (almost) nothing. With forward f and backward b of a model chunk a step is
// (v m + p - 1)(f + b) (see pipeline_test.cpp). Embedding, head and loss make the first and last chunk a little longer,
// so the step lies between that of the shortest and that of the longest chunk, and the bubble's share of it is off by
// no more than these differ.
TEST_P(SimulatedPipeline, HasTheBubbleOfItsRamp) {
  constexpr std::int64_t p = 4;
  const std::int64_t v = GetParam().chunks;
  Transformer model = small_llama(8);
  model.hidden = model.ffn = 1024;
  model.heads = model.kv_heads = 16;
  model.head_dim = 64;
  model.vocab = 1;
  for (const std::int64_t m : {4, 8, 16}) {
    PlanRequest r = request(model, parse_cluster("dgx-a100:1,gpus=4,nvlink=1000TB/s"),
                            {.pp = p, .vpp = v, .micro_batch = 4, .seq = 4096, .schedule = GetParam().schedule}, m);
    idealize(r);
    const Plan plan = serial(r);
    const Cluster cluster(plan.cluster);
    const CostModel cost(plan.graph, cluster, r.profile);
    std::map<std::pair<std::int32_t, std::int32_t>, std::pair<Nanos, Nanos>> chunks;  // (stage, chunk): forward, rest
    std::map<std::int32_t, Nanos> update;                                             // by stage
    Nanos messages;
    for (const Operation& op : plan.graph.operations) {
      auto& [forward, backward] = chunks[{op.rank_class.value, op.chunk}];
      if (op.is_transfer()) {
        messages += cost.alone(op) * m;
      } else if (!op.per_micro_batch) {
        update[op.rank_class.value] += cost.compute(op);
      } else {
        (op.phase == Phase::forward ? forward : backward) += cost.compute(op);
      }
    }
    ASSERT_EQ(chunks.size(), static_cast<std::size_t>(p * v));
    Nanos f_min{INT64_MAX}, f_max, b_min{INT64_MAX}, b_max;
    for (const auto& [key, times] : chunks) {
      f_min = std::min(f_min, times.first);
      f_max = std::max(f_max, times.first);
      b_min = std::min(b_min, times.second);
      b_max = std::max(b_max, times.second);
    }
    const auto units = static_cast<double>(v * m + p - 1);
    const double least = units * seconds(f_min + b_min);
    Nanos longest_update;
    for (const auto& [stage, time] : update) longest_update = std::max(longest_update, time);
    const double most = units * seconds(f_max + b_max) + seconds(longest_update + messages);
    ASSERT_LT(most, 1.05 * least) << "the chunks are too unlike for the closed form to say much";

    const Timeline timeline = simulated(plan, r.profile);
    const Accounting accounting = checked_accounting(timeline);
    const RankAccount& middle = accounting.ranks.at(1);
    EXPECT_GE(middle.step_s, least);
    EXPECT_LE(middle.step_s, most);
    EXPECT_NEAR(middle.bubble_s / middle.step_s, static_cast<double>(p - 1) / units, most / least - 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, SimulatedPipeline,
                         testing::Values(Stages{PipelineSchedule::gpipe, 1}, Stages{PipelineSchedule::one_f_one_b, 1},
                                         Stages{PipelineSchedule::interleaved, 2}));

// Two transfers over one link, the second from `later` on: when each ends (fluid, equal shares).
std::pair<double, double> two_flows(double first, double second, double later) {
  if (later >= first) return {first, later + second};
  const double left = first - later;
  if (left <= second) return {later + 2 * left, later + left + second};
  return {later + second + left, later + 2 * second};
}

TEST(SimulatedStep, StagesOfOneNodeShareItsAdapter) {
  // Two nodes of two GPUs, pp inside the node: both stages reduce their gradients over the node's one adapter, the last
  // stage first. With an adapter each they do not meet.
  Transformer model = small_llama(4);
  model.hidden = model.ffn = 512;
  PlanRequest r = request(model, parse_cluster("p3dn:2,gpus=2"),
                          {.pp = 2, .mesh_order = {Axis::tp, Axis::cp, Axis::pp, Axis::dp}}, 1);
  r.cluster.device.compute_slowdown = r.cluster.device.transfer_slowdown = 0;
  issue_at_once(r);
  PlanRequest own = r;
  for (LevelSpec& level : own.cluster.levels) level.shared_by = 1;

  const auto reductions = [](const Timeline& timeline) {  // of the first iteration, by stage
    std::map<std::int32_t, std::pair<Span, TimelineOperation>> found;
    for (const Span& span : timeline.spans) {
      const TimelineOperation& op = timeline.operations[span.operation];
      if (span.iteration == 0 && op.activity == Activity::transfer && op.traffic == TrafficKind::dp_grad) {
        EXPECT_TRUE(found.try_emplace(op.rank, span, op).second);
      }
    }
    EXPECT_EQ(found.size(), 2u);
    return found;
  };
  for (const auto& [stage, reduction] : reductions(simulated(own))) {
    const auto& [span, op] = reduction;
    EXPECT_EQ(span.end - span.start, op.alone);
  }
  const auto shared = reductions(simulated(r));
  const auto& [first, first_op] = shared.at(1);
  const auto& [second, second_op] = shared.at(0);
  const double latency = 2 * (5000 + 500);  // two messages of a ring of two, each over PCIe and NIC
  const auto ns = [](Nanos t) { return static_cast<double>(t.value); };
  const double later = ns(second.start - first.start);
  const auto [first_end, second_end] = two_flows(ns(first_op.alone) - latency, ns(second_op.alone) - latency, later);
  EXPECT_LT(later, ns(first_op.alone));  // they do meet
  EXPECT_NEAR(ns(first.end - first.start), latency + first_end, 2);
  EXPECT_NEAR(ns(second.end - first.start), latency + second_end, 2);
  EXPECT_GT(simulated(r).period_ns, simulated(own).period_ns);
  checked_accounting(simulated(r));
}

}  // namespace
}  // namespace weft::test
