// Whole plans, folded and not: the same spans, the same accounts, the same critical path; also where transfers of the
// serial plan are let loose and run beside compute, and for windows that cut folded spans anywhere.
#include <gtest/gtest.h>

#include <random>

#include "base/test_effort.hpp"
#include "sim/memory_curve.hpp"
#include "sim/test_steps.hpp"
#include "timeline/critical_path.hpp"

namespace weft::test {
namespace {

struct Simulated {
  Timeline folded, written_out, plain;
};

Simulated simulate_both(const Plan& plan, const Profile& profile) {
  const Cluster cluster(plan.cluster);
  const CostModel cost(plan.graph, cluster, profile);
  Simulated s{simulate_plan(WholePlan(plan), cost), {}, simulate_plan(WholePlan(plan), cost, {.fold = false})};
  s.written_out = expanded(s.folded);
  return s;
}

void expect_same_spans(const Timeline& a, const Timeline& b) {
  ASSERT_EQ(a.spans.size(), b.spans.size());
  EXPECT_TRUE(a.folded.empty() && b.folded.empty());
  for (std::size_t i = 0; i < a.spans.size(); ++i) {
    const Span &x = a.spans[i], &y = b.spans[i];
    ASSERT_EQ(std::tuple(x.operation, x.iteration, x.start, x.end, x.issued, x.ready),
              std::tuple(y.operation, y.iteration, y.start, y.end, y.issued, y.ready))
        << "span " << i << ": " << a.names[a.operations[x.operation].name];
  }
  EXPECT_EQ(a.period_ns, b.period_ns);
  EXPECT_EQ(a.periods, b.periods);
  EXPECT_EQ(a.steady_begin, b.steady_begin);
  EXPECT_EQ(a.steady_first, b.steady_first);
}

std::vector<double> terms(const RankAccount& a) {
  std::vector<double> terms(a.exposed_by.begin(), a.exposed_by.end());
  terms.insert(terms.end(), {a.step_s, a.compute_s, a.slowdown_s, a.exposed_s, a.bubble_s, a.idle_s, a.comm_s});
  return terms;
}

void expect_same_accounts(const Timeline& a, const Timeline& b) {
  const Accounting x = account(a), y = account(b);
  ASSERT_EQ(x.ranks.size(), y.ranks.size());
  for (std::size_t r = 0; r < x.ranks.size(); ++r) EXPECT_EQ(terms(x.ranks[r]), terms(y.ranks[r])) << "rank " << r;
  EXPECT_EQ(terms(x.mean), terms(y.mean));
  ASSERT_EQ(x.exposed.size(), y.exposed.size());
  for (std::size_t i = 0; i < x.exposed.size(); ++i) {
    const ExposedStretch &p = x.exposed[i], &q = y.exposed[i];
    ASSERT_EQ(std::tuple(p.rank, p.kind, p.begin, p.end), std::tuple(q.rank, q.kind, q.begin, q.end)) << i;
  }
}

// Steps of one operation each.
std::vector<CriticalStep> critical_steps(const Timeline& timeline) {
  std::vector<CriticalStep> steps;
  for (const CriticalStep& step : critical_path(timeline)) {
    Nanos now = step.begin;
    for (std::int32_t i = step.operation; i < step.operation + step.count; ++i) {
      const Nanos end = step.count == 1 ? step.end : now + timeline.operations[i].alone;
      steps.push_back({i, 1, step.iteration, now, end});
      now = end;
    }
    EXPECT_EQ(now, step.end);
  }
  return steps;
}

void expect_same_in_any_window(Simulated& s, std::mt19937& random) {
  const auto end = s.plain.spans.back().end.value;
  for (int i = 0; i < 4; ++i) {
    const auto begin = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
    for (Timeline* t : {&s.folded, &s.plain}) {
      t->steady_begin = Nanos{begin};
      t->periods = 1;
      t->period_ns = static_cast<double>(1 + (end - begin) / (1 + i));
    }
    expect_same_accounts(s.folded, s.plain);
  }
}

void expect_same(const Plan& plan, const Profile& profile, std::mt19937& random, std::int64_t& folded_spans) {
  Simulated s = simulate_both(plan, profile);
  folded_spans += static_cast<std::int64_t>(s.folded.folded.size());
  expect_same_spans(s.written_out, s.plain);
  if (testing::Test::HasFatalFailure()) return;
  expect_same_accounts(s.folded, s.plain);
  EXPECT_EQ(critical_steps(s.folded), critical_steps(s.plain));
  expect_same_in_any_window(s, random);
}

std::vector<Transformer> models() {
  return {small_gpt(), small_llama(), small_moe(), small_mla()};
}

// Long messages and a shared adapter: links matter, and transfers beside compute slow it down.
ClusterSpec slow_nodes() {
  ClusterSpec spec = parse_cluster("p3dn:4,gpus=4,nvlink=2GB/s,nic=8Gb/s");
  spec.device.compute_slowdown = 0.25;
  spec.device.transfer_slowdown = 0.4;
  return spec;
}

TEST(FoldedPlans, OfEveryLayoutAreThePlainOnes) {
  std::mt19937 random(1);
  Sample sample;
  std::int64_t folded = 0;
  for (const ClusterSpec& cluster : {parse_cluster("dgx-a100:2"), slow_nodes(), uneven_nics()}) {
    for (const NamedLayout& named : layouts()) {
      if (!sample.takes()) continue;
      SCOPED_TRACE(cluster.name + ", " + named.name);
      const Transformer model = named.layout.ep > 1 ? small_moe() : models()[random() % 4];
      const PlanRequest r = request(model, cluster, named.layout, 8);
      expect_same(serial(r), r.profile, random, folded);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(folded, rounds(1000));
}

PlanRequest some_request(const NamedLayout& named, std::mt19937& random) {
  Layout layout = named.layout;
  layout.zero = static_cast<int>(random() % 4);
  return request(layout.ep > 1 ? small_moe() : models()[random() % 4], slow_nodes(), layout, 8);
}

TEST(FoldedPlans, OfEveryPolicyAreThePlainOnes) {
  std::mt19937 random(3);
  Sample sample;
  std::int64_t folded = 0;
  for (const std::string& policy : policy_names()) {
    for (const NamedLayout& named : layouts()) {
      if (!sample.takes()) continue;
      SCOPED_TRACE(policy + ", " + named.name);
      const PlanRequest r = some_request(named, random);
      expect_same(make_plan(searching(r), build(r), policy), r.profile, random, folded);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(folded, rounds(1000));
}

// Only data orders them then: they run beside compute, slow it and share links with what is left in the chain.
void let_transfers_loose(Plan& plan, std::mt19937& random, unsigned one_in) {
  for (std::size_t i = 0; i < plan.issues.size(); ++i) {
    if (plan.issues[i].blocking && random() % one_in == 0) plan.issues[i].blocking = false;
  }
}

TEST(FoldedPlans, WithTransfersBesideComputeAreThePlainOnes) {
  std::mt19937 random(2);
  Sample sample;
  std::int64_t folded = 0, slowed = 0;
  for (const unsigned one_in : {2U, 6U, 20U}) {
    for (const NamedLayout& named : layouts()) {
      if (!sample.takes()) continue;
      SCOPED_TRACE(named.name);
      const PlanRequest r = some_request(named, random);
      Plan plan = serial(r);
      let_transfers_loose(plan, random, one_in);
      expect_same(plan, r.profile, random, folded);
      if (HasFailure()) return;
      for (const RankAccount& a : account(simulated(plan, r.profile)).ranks) slowed += a.slowdown_s > 0;
    }
  }
  EXPECT_GT(folded, rounds(1000));
  EXPECT_GT(slowed, rounds(20));  // or nothing ran beside compute
}

TEST(FoldedPlans, ShowTheMemoryOfPlainOnes) {
  const PlanRequest r = request(small_gpt(), parse_cluster("dgx-a100:2"), {.tp = 4, .pp = 2, .etp = 4}, 8);
  const Plan plan = serial(r);
  const Simulated s = simulate_both(plan, r.profile);
  const auto folded = memory_curve(plan, s.folded), plain = memory_curve(plan, s.plain);
  ASSERT_EQ(folded.size(), plain.size());
  for (std::size_t c = 0; c < plain.size(); ++c) {
    ASSERT_EQ(folded[c].size(), plain[c].size());
    Bytes peak;
    for (std::size_t i = 0; i < plain[c].size(); ++i) {
      EXPECT_EQ(folded[c][i].at, plain[c][i].at);
      EXPECT_EQ(folded[c][i].bytes, plain[c][i].bytes);
      peak = std::max(peak, plain[c][i].bytes);
    }
    EXPECT_GT(peak, Bytes{0});
    EXPECT_LE(peak, plan.classes[c].memory);
  }
}

}  // namespace
}  // namespace weft::test
