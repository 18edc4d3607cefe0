// Small timelines in which the reason of every exposed nanosecond is known by construction.
#include "timeline/explain.hpp"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "timeline/accounting.hpp"
#include "timeline/test_timeline.hpp"

namespace weft::test {
namespace {

using enum ExposureReason;

// A timeline of one step from 0 to 100; operations are their own kinds.
class Explained : public TestTimeline {
 public:
  // A transfer that takes as long as alone.
  std::int32_t message(std::int32_t rank, std::int64_t start, std::int64_t end, std::int32_t number = -1) {
    const std::int32_t id = transfer(rank, TrafficKind::tp, number);
    alone(id, end - start);
    run(id, start, end);
    return id;
  }
  std::int32_t work(std::int32_t rank, std::int64_t start, std::int64_t end) {
    const std::int32_t id = compute(rank, end - start);
    run(id, start, end);
    return id;
  }
  void fixed(std::int32_t operation, std::int64_t time) { fixed_[operation] = Nanos{time}; }

  void explain_all() {
    window(0, 100);
    const Timeline timeline = build();
    check_timeline(timeline);
    SpanIndex index(timeline);
    ExplainedOperations operations;
    operations.kind.resize(timeline.operations.size());
    std::iota(operations.kind.begin(), operations.kind.end(), 0);
    operations.fixed.resize(timeline.operations.size());
    for (const auto& [operation, time] : fixed_) operations.fixed[operation] = time;
    for (const auto& rank : explain(timeline, index, operations)) {
      for (const ExplainedTransfer& t : rank) transfers_[t.kind] = t;
    }
  }
  const ExplainedTransfer& of(std::int32_t operation) const { return transfers_.at(operation); }

 private:
  std::map<std::int32_t, Nanos> fixed_;
  std::map<std::int32_t, ExplainedTransfer> transfers_;
};

struct Why {
  ExposureReason reason;
  std::int64_t nanos;
  std::int32_t cause, waiting;
};
void expect_exposed(const ExplainedTransfer& t, const std::vector<Why>& expected) {
  ASSERT_EQ(t.exposures.size(), expected.size());
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(name_of(t.exposures[i].reason), name_of(expected[i].reason));
    EXPECT_NEAR(t.exposures[i].seconds * 1e9, static_cast<double>(expected[i].nanos), 1e-6);
    EXPECT_EQ(t.exposures[i].cause, expected[i].cause);
    EXPECT_EQ(t.exposures[i].waiting, expected[i].waiting);
    sum += expected[i].nanos;
  }
  EXPECT_NEAR(t.exposed_s * 1e9, static_cast<double>(sum), 1e-6);
}

TEST(Explain, NothingElseWasReadyIsDependency) {
  Explained t;
  t.rank();
  const auto a = t.work(0, 0, 30), m = t.message(0, 30, 60), b = t.work(0, 60, 100);
  t.wait(m, {a});
  t.wait(b, {m});
  t.explain_all();
  expect_exposed(t.of(m), {{dependency, 30, a, b}});
  EXPECT_EQ(t.of(m).instances, 1);
  EXPECT_EQ(t.of(m).bytes, Bytes{1024});
  EXPECT_NEAR(t.of(m).busy_s, 30e-9, 1e-15);
  EXPECT_EQ(t.of(m).hidden_s, 0);
}

TEST(Explain, MostlyFixedTimeIsLatency) {
  for (const bool mostly : {false, true}) {
    Explained t;
    t.rank();
    const auto a = t.work(0, 0, 30), m = t.message(0, 30, 60), b = t.work(0, 60, 100);
    t.wait(m, {a});
    t.wait(b, {m});
    t.fixed(m, mostly ? 16 : 15);
    t.explain_all();
    expect_exposed(t.of(m), {{mostly ? latency : dependency, 30, a, b}});
  }
}

TEST(Explain, ComputeThatTheOrderHoldsBackCouldHaveRunBesideIt) {
  // b needs a only, but comes after the message in the order: 10 of the message's 30. c needs the message.
  Explained t;
  t.rank();
  const auto a = t.work(0, 0, 30), m = t.message(0, 30, 60), b = t.work(0, 60, 70), c = t.work(0, 70, 100);
  t.wait(m, {a});
  t.wait(b, {a});
  t.follow(b, m);
  t.wait(c, {m});
  t.explain_all();
  expect_exposed(t.of(m), {{dependency, 20, a, b}, {held_back, 10, b, b}});
}

TEST(Explain, EachOperationFillsExposedTimeOnce) {
  // d is ready from 10 on and takes 15: it fills all 10 of the first message and 5 of the second.
  Explained t;
  t.rank();
  const auto a = t.work(0, 0, 10), m = t.message(0, 10, 20), b = t.work(0, 20, 30), n = t.message(0, 30, 50);
  const auto c = t.work(0, 50, 80), d = t.work(0, 80, 95);
  t.wait(m, {a});
  t.wait(b, {m});
  t.wait(n, {b});
  t.wait(c, {n});
  t.wait(d, {a});
  t.follow(d, c);
  t.explain_all();
  expect_exposed(t.of(m), {{held_back, 10, d, b}});
  expect_exposed(t.of(n), {{dependency, 15, b, c}, {held_back, 5, d, c}});
}

TEST(Explain, WhatIsNotYetReadyFillsOnlyWhatComesAfter) {
  // The copy p makes d ready at 45, in the midst of m: 5 of it remain. p ends first and is in m's shadow.
  Explained t;
  t.rank();
  const auto a = t.work(0, 0, 20), m = t.message(0, 20, 50), p = t.message(0, 20, 45), b = t.work(0, 50, 80);
  const auto d = t.work(0, 80, 100);
  t.queue(p, 2);
  t.wait(m, {a});
  t.wait(p, {a});
  t.wait(b, {m});
  t.wait(d, {p});
  t.follow(d, b);
  t.explain_all();
  expect_exposed(t.of(m), {{dependency, 25, a, b}, {held_back, 5, d, b}});
  EXPECT_NEAR(t.of(p).beside_s, 25e-9, 1e-15);
  EXPECT_EQ(t.of(p).exposed_s + t.of(p).hidden_s, 0);
}

TEST(Explain, AQueueThatIsBusyHoldsItUp) {
  Explained t;
  t.rank();
  const auto a = t.work(0, 0, 20), p = t.message(0, 20, 60), b = t.work(0, 20, 60), m = t.message(0, 60, 90);
  const auto c = t.work(0, 90, 100);
  t.wait(p, {a});
  t.wait(m, {a});
  t.follow(m, p);
  t.wait(b, {a});
  t.wait(c, {m});
  t.explain_all();
  expect_exposed(t.of(m), {{queue_busy, 30, p, c}});
  expect_exposed(t.of(p), {});
  ASSERT_EQ(t.of(p).hidden_behind.size(), 1U);
  EXPECT_EQ(t.of(p).hidden_behind[0].kind, b);
  EXPECT_NEAR(t.of(p).hidden_behind[0].seconds, 40e-9, 1e-15);
}

TEST(Explain, ATransferThatIsNotReadyHoldsUpThoseBehindItInItsQueue) {
  // m's data is there at 20. Its queue carries p first, which waits for b until 60 and moves for 5.
  Explained t;
  t.rank();
  const auto a = t.work(0, 0, 20), b = t.work(0, 20, 60), p = t.message(0, 60, 65), c = t.work(0, 60, 65);
  const auto m = t.message(0, 65, 95), d = t.work(0, 95, 100);
  t.wait(b, {a});
  t.wait(p, {b});
  t.wait(c, {b});
  t.wait(m, {a});
  t.follow(m, p);
  t.wait(d, {m});
  t.explain_all();
  expect_exposed(t.of(m), {{issue_order, 25, p, d}, {queue_busy, 5, p, d}});
}

TEST(Explain, ATransferIssuedBehindComputeIsLateByTheOrder) {
  // Blocking: issued after b, though a made its data. Ten late, thirty long.
  Explained t;
  t.rank();
  const auto a = t.work(0, 0, 40), b = t.work(0, 40, 50), m = t.message(0, 50, 80), c = t.work(0, 80, 100);
  t.follow(b, a);
  t.wait(m, {a});
  t.follow(m, b);
  t.wait(c, {m});
  t.explain_all();
  expect_exposed(t.of(m), {{dependency, 20, a, c}, {issue_order, 10, b, c}});
}

TEST(Explain, MemoryInUseHoldsItUp) {
  Explained t;
  t.rank();
  const auto a = t.work(0, 0, 20), b = t.work(0, 20, 50), m = t.message(0, 50, 90), c = t.work(0, 90, 100);
  t.wait(m, {a});
  t.reuse(m, b);
  t.wait(c, {m});
  t.explain_all();
  expect_exposed(t.of(m), {{memory, 30, b, c}, {dependency, 10, a, c}});
}

TEST(Explain, ASharedLinkStretchesIt) {
  // Both would take 20 alone and take 40 together; the exposed time is m's, by number.
  Explained t;
  t.rank();
  const auto a = t.work(0, 0, 20), m = t.message(0, 20, 60), n = t.message(0, 20, 60), b = t.work(0, 60, 100);
  t.alone(m, 20);
  t.alone(n, 20);
  t.queue(n, 2);
  t.wait(m, {a});
  t.wait(n, {a});
  t.wait(b, {m, n});
  t.explain_all();
  expect_exposed(t.of(m), {{dependency, 20, a, b}, {link_busy, 20, n, b}});
  EXPECT_NEAR(t.of(n).beside_s, 40e-9, 1e-15);
}

TEST(Explain, AStretchedTransferWithNothingBesideItSharesALinkWithOtherRanks) {
  Explained t;
  t.rank();
  const auto a = t.work(0, 0, 20), m = t.message(0, 20, 60), b = t.work(0, 60, 100);
  t.alone(m, 25);
  t.wait(m, {a});
  t.wait(b, {m});
  t.explain_all();
  expect_exposed(t.of(m), {{dependency, 25, a, b}, {link_busy, 15, -1, b}});
}

TEST(Explain, APeerThatComesLaterDelaysIt) {
  // Rank 0 waits 30 for rank 1, which is bubble; then both wait for the message. Rank 0's end had been hidden had rank
  // 1 come 30 earlier; for rank 1 it is its own data.
  Explained t;
  t.rank();
  t.rank();
  const auto a = t.work(0, 0, 20), m = t.message(0, 50, 80, 1), b = t.work(0, 80, 100);
  const auto x = t.work(1, 0, 50), n = t.message(1, 50, 80, 1), y = t.work(1, 80, 100);
  t.wait(m, {a});
  t.wait(b, {m});
  t.wait(n, {x});
  t.wait(y, {n});
  t.explain_all();
  expect_exposed(t.of(m), {{late_peer, 30, x, b}});
  EXPECT_EQ(t.of(m).exposures[0].cause_rank, 1);
  expect_exposed(t.of(n), {{dependency, 30, x, y}});
}

TEST(Explain, HiddenTimeIsSharedOutOverWhatRanBesideIt) {
  // 30 beside b, 10 beside nothing (c comes late for no reason), 20 beside c.
  Explained t;
  t.rank();
  const auto a = t.work(0, 0, 10), m = t.message(0, 10, 70), b = t.work(0, 10, 40), c = t.work(0, 50, 100);
  t.wait(m, {a});
  t.wait(b, {a});
  t.wait(c, {b});
  t.explain_all();
  const ExplainedTransfer& e = t.of(m);
  EXPECT_EQ(e.exposed_s, 0);
  EXPECT_NEAR(e.hidden_s, 60e-9, 1e-15);
  ASSERT_EQ(e.hidden_behind.size(), 3U);
  const std::vector<std::pair<std::int32_t, double>> expected{{b, 30e-9}, {c, 20e-9}, {-1, 10e-9}};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(e.hidden_behind[i].kind, expected[i].first);
    EXPECT_NEAR(e.hidden_behind[i].seconds, expected[i].second, 1e-15);
  }
}

}  // namespace
}  // namespace weft::test
