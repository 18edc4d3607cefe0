// Accounts of timelines as a run measures them: every rank by itself, clocks that agree to some microseconds only, gaps
// and overlaps between spans that follow each other.
#include <gtest/gtest.h>

#include <random>

#include "sim/test_steps.hpp"

namespace weft::test {
namespace {

constexpr std::int64_t kNoise = 20'000;

// Every rank that the only rank of a prediction stands for by itself; its transfers are those of all of them.
Timeline rank_by_rank(const Timeline& folded) {
  const Timeline one = expanded(folded);
  EXPECT_EQ(one.ranks.size(), 1U);
  const auto ranks = static_cast<std::int32_t>(one.ranks.front().ranks);
  const auto operations = static_cast<std::int32_t>(one.operations.size());
  Timeline all = one;
  all.measured = true;
  all.ranks.clear();
  all.operations.clear();
  all.dependency_begin = {0};
  all.dependencies.clear();
  all.spans.clear();
  for (std::int32_t r = 0; r < ranks; ++r) {
    all.ranks.push_back({"rank", Rank{r}, 1, one.ranks.front().queues});
    for (std::int32_t i = 0; i < operations; ++i) {
      const std::size_t own = i;
      all.operations.push_back(one.operations[own]);
      all.operations.back().rank = r;
      if (one.operations[own].activity == Activity::transfer) all.operations.back().transfer = i;
      for (auto d = one.dependency_begin[own]; d < one.dependency_begin[own + 1]; ++d) {
        all.dependencies.push_back(one.dependencies[d]);
        all.dependencies.back().operation += r * operations;
      }
      all.dependency_begin.push_back(static_cast<std::int32_t>(all.dependencies.size()));
    }
    for (Span span : one.spans) {
      span.operation += r * operations;
      all.spans.push_back(span);
    }
  }
  return all;
}

// Both ends of every span by up to kNoise, and each rank's clock by as much again.
void disturb(Timeline& timeline, std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto noise = [&] { return Nanos{static_cast<std::int64_t>(random() % (2 * kNoise + 1)) - kNoise}; };
  std::vector<Nanos> clocks;
  for (std::size_t r = 0; r < timeline.ranks.size(); ++r) clocks.push_back(noise());
  for (Span& span : timeline.spans) {
    const Nanos clock = clocks[timeline.operations[span.operation].rank];
    span.start += clock + noise();
    span.end = std::max(span.start, span.end + clock + noise());
  }
}

// Operations of milliseconds on slow links.
PlanRequest slow_step(const char* cluster, Layout layout) {
  Transformer model = small_gpt(4);
  model.hidden = 512;
  model.head_dim = 128;
  model.ffn = 2048;
  model.max_seq = 256;
  layout.micro_batch = 4;
  PlanRequest r = request(model, parse_cluster(cluster), layout, 2);
  r.layout.seq = 256;
  return r;
}

void expect_near(const RankAccount& noisy, const RankAccount& exact, double tolerance) {
  EXPECT_NEAR(noisy.compute_s + noisy.slowdown_s, exact.compute_s + exact.slowdown_s, tolerance);
  EXPECT_NEAR(noisy.compute_s, exact.compute_s, tolerance);
  EXPECT_NEAR(noisy.slowdown_s, exact.slowdown_s, tolerance);
  EXPECT_NEAR(noisy.exposed_s, exact.exposed_s, tolerance);
  EXPECT_NEAR(noisy.bubble_s, exact.bubble_s, tolerance);
  EXPECT_NEAR(noisy.idle_s, exact.idle_s, tolerance);
  EXPECT_NEAR(noisy.comm_s, exact.comm_s, tolerance);
}

void expect_robust(const Timeline& timeline) {
  const Accounting exact = checked_accounting(timeline);
  for (std::uint32_t seed = 1; seed <= 5; ++seed) {
    Timeline noisy = timeline;
    disturb(noisy, seed);
    const Accounting disturbed = checked_accounting(noisy);
    for (std::size_t r = 0; r < timeline.ranks.size(); ++r) {
      // Each span moves each term by its two ends at most, each end by its own noise and the clock's.
      double spans = 0;
      for (const TimelineOperation& op : timeline.operations) spans += op.rank == static_cast<int>(r) ? 1 : 0;
      const double tolerance = spans * 4 * kNoise * 1e-9;
      EXPECT_LT(tolerance, 0.05 * exact.ranks[r].step_s);  // or nothing would be shown
      expect_near(disturbed.ranks[r], exact.ranks[r], tolerance);
    }
  }
}

TEST(MeasuredAccounting, RanksByThemselvesHaveTheAccountOfTheRankThatStoodForThem) {
  for (const char* policy : {"serial", "ddp", "fsdp"}) {
    const Timeline predicted = simulated(slow_step("local:4,nic=200Mb/s", {}), policy);
    const RankAccount one = checked_accounting(predicted).mean;
    const Accounting all = checked_accounting(rank_by_rank(predicted));
    ASSERT_EQ(all.ranks.size(), 4U);
    EXPECT_GT(one.exposed_s, 0);
    for (const RankAccount& account : all.ranks) expect_near(account, one, 1e-12);
  }
}

TEST(MeasuredAccounting, NoiseMovesTheFiguresByNoMoreThanTheNoise) {
  for (const char* policy : {"serial", "ddp", "fsdp"}) {
    SCOPED_TRACE(policy);
    expect_robust(rank_by_rank(simulated(slow_step("local:2,nic=200Mb/s", {}), policy)));
  }
  Layout sharded;
  sharded.zero = 3;
  expect_robust(rank_by_rank(simulated(slow_step("local:2,nic=200Mb/s", sharded), "fsdp")));
}

TEST(MeasuredAccounting, NoiseInAPipelineToo) {
  Layout pipeline;
  pipeline.pp = 2;
  const Timeline timeline = simulated(slow_step("local:2,nic=200Mb/s", pipeline), "serial");
  ASSERT_EQ(timeline.ranks.size(), 2U);
  EXPECT_GT(checked_accounting(timeline).mean.bubble_s, 0);
  expect_robust(timeline);
}

}  // namespace
}  // namespace weft::test
