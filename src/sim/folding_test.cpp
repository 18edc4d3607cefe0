// Folding changes how much is simulated, never what: every time of every operation is compared with the simulation
// that folds nothing.
#include "sim/folding.hpp"

#include <gtest/gtest.h>

#include <random>

#include "base/test_effort.hpp"
#include "sim/simulate_folded.hpp"
#include "sim/test_problems.hpp"

namespace weft::test {
namespace {

struct Counts {
  std::int64_t operations = 0, simulated = 0;  // as SimWork
  std::int64_t slowed_in_runs = 0;
  int repeats = 0;
};

void expect_same_times(const SimProblem& problem, Counts& counts) {
  const SimResult folded = simulate(problem), plain = simulate(problem, {.fold = false});
  ASSERT_EQ(folded.iterations.size(), plain.iterations.size());
  for (std::size_t k = 0; k < plain.iterations.size(); ++k) {
    for (std::size_t i = 0; i < problem.operations.size(); ++i) {
      const SimTimes &f = folded.iterations[k][i], &p = plain.iterations[k][i];
      ASSERT_EQ(f.start, p.start) << "operation " << i << ", iteration " << k;
      ASSERT_EQ(f.end, p.end) << "operation " << i << ", iteration " << k;
      ASSERT_EQ(f.issued, p.issued) << "operation " << i << ", iteration " << k;
      ASSERT_EQ(f.ready, p.ready) << "operation " << i << ", iteration " << k;
    }
  }
  EXPECT_EQ(folded.period_ns, plain.period_ns);
  EXPECT_EQ(folded.periods, plain.periods);
  EXPECT_EQ(folded.steady_first, plain.steady_first);
  EXPECT_EQ(folded.steady_begin, plain.steady_begin);
  EXPECT_EQ(folded.repeats, plain.repeats);
  EXPECT_EQ(plain.work.operations, plain.work.simulated);
  counts.operations += folded.work.operations;
  counts.simulated += folded.work.simulated;
  counts.repeats += folded.repeats;
  for (const FoldedIteration& it : simulate_folded(problem).iterations) {
    counts.slowed_in_runs += static_cast<std::int64_t>(it.slowed.size());
  }
}

struct Mix {
  bool sharing = false, interference = false, extra = false, drifts = false;
  std::int64_t longest = 20;
  unsigned free_in = 12;   // one operation in so many is a transfer beside the chain
  unsigned joint_in = 16;  // ... one of two ranks
};

class RandomChains {
 public:
  RandomChains(std::mt19937& random, const Mix& mix) : random_(random), mix_(mix) {}

  // Long chains; now and then a transfer beside them that a chain feeds and a later operation needs. Edges go from
  // lower to higher operations, so there is no cycle. Operation 0 begins the step of every rank and waits for the last
  // of it.
  SimProblem make() {
    ranks_ = 1 + below(3);
    const auto slowdown = [&] { return mix_.interference ? 0.1 * static_cast<double>(below(6)) : 0.0; };
    for (std::int32_t r = 0; r < ranks_; ++r) {
      const double compute = slowdown(), transfer = slowdown(), further = slowdown(), waiting = slowdown();
      p_.rank(compute, transfer, mix_.interference ? below(3) : 0, further, waiting);
    }
    last_.assign(ranks_, 0);
    chains_.resize(ranks_);
    p_.compute(0, 20);
    for (std::int32_t r = 1; r < ranks_; ++r) {
      last_[r] = p_.compute(r, 1 + below(5));
      p_.wait(last_[r], 0);
    }
    added_ = ranks_;
    const std::int32_t wanted = 4 + below(60);
    while (added_ < wanted) add();
    for (const std::int32_t last : last_) p_.wait(0, last, 1);
    return p_.build();
  }

 private:
  std::int32_t below(std::int64_t n) { return static_cast<std::int32_t>(random_() % static_cast<std::uint32_t>(n)); }
  bool one_in(unsigned n) { return random_() % n == 0; }

  Message message() {
    Message m{.moving = one_in(6) ? 0 : below(mix_.longest),
              .latency = one_in(3) ? below(mix_.longest / 3) : 0,
              .queue = below(2)};
    if (mix_.sharing && !one_in(4)) m.use = {{below(3), 0.1 * (1 + below(10))}};
    if (mix_.sharing && one_in(4)) m.use.push_back({3, 0.25});
    return m;
  }

  void add() {
    const std::int32_t rank = below(ranks_);
    auto& last = last_[rank];
    if (one_in(mix_.joint_in) && ranks_ > 1) {
      const std::int32_t other = (rank + 1) % ranks_;
      Message m = message();
      m.joint = joints_++;
      m.blocking = one_in(2);
      const std::int32_t before = last, other_before = last_[other];
      for (const std::int32_t member : {rank, other}) {
        const std::int32_t id = p_.transfer(member, m);
        p_.wait(id, member == rank ? before : other_before);
        if (m.blocking) last_[member] = id;
        if (!m.blocking) beside(id);
        ++added_;
      }
    } else if (one_in(mix_.free_in)) {
      const std::int32_t id = p_.transfer(rank, message());
      p_.wait(id, last);
      beside(id);
      ++added_;
    } else if (mix_.extra && one_in(10)) {
      const std::int32_t id = p_.extra(rank, below(mix_.longest));
      p_.wait(id, last);
      p_.wait(0, id, 1);
      ++added_;
    } else {
      Message m = message();
      m.blocking = true;
      if (m.moving + m.latency == 0 && !one_in(4)) m.moving = 1;
      auto& chain = chains_[rank];
      last = one_in(3) ? p_.transfer(rank, m) : p_.compute(rank, one_in(30) ? 0 : 1 + below(mix_.longest));
      if (!chain.empty() && one_in(3))
        p_.wait(last, chain[random_() % chain.size()], static_cast<std::int8_t>(below(2)));
      if (one_in(30)) p_.wait(last, below(last), static_cast<std::int8_t>(below(2)));  // from anywhere
      chain.push_back(last);
      if (!waiting_.empty() && one_in(8)) {
        p_.wait(last, waiting_.back());
        waiting_.pop_back();
      }
      ++added_;
    }
  }
  void beside(std::int32_t id) {
    if (one_in(2)) waiting_.push_back(id);
    if (!mix_.drifts || !one_in(2)) p_.wait(0, id, 1);
  }

  std::mt19937& random_;
  Mix mix_;
  TestProblem p_;
  std::int32_t ranks_ = 0, added_ = 0, joints_ = 0;
  std::vector<std::int32_t> last_;  // of each chain
  std::vector<std::vector<std::int32_t>> chains_;
  std::vector<std::int32_t> waiting_;  // transfers that some later operation is to wait for
};

Counts compare_many(const Mix& mix, unsigned seed, int count) {
  std::mt19937 random(seed);
  Counts counts;
  for (int round = 0; round < count && !testing::Test::HasFatalFailure(); ++round) {
    SCOPED_TRACE(round);
    expect_same_times(RandomChains(random, mix).make(), counts);
  }
  return counts;
}

TEST(Folding, ChainsAloneKeepTheirTimesAndAreMostlyOneEvent) {
  const Counts counts = compare_many({.free_in = 1000, .joint_in = 1000}, 1, rounds(400));
  EXPECT_GT(counts.operations, 2 * counts.simulated);
  EXPECT_EQ(counts.slowed_in_runs, 0);
}

TEST(Folding, TransfersBesideChainsKeepTheirTimes) {
  const Counts counts = compare_many({}, 2, rounds(400));
  EXPECT_GT(counts.operations, 4 * counts.simulated / 3);
  EXPECT_EQ(counts.slowed_in_runs, 0);
}

TEST(Folding, InterferenceOpensRunsAndKeepsTheTimes) {
  const Counts counts = compare_many({.interference = true}, 3, rounds(600));
  EXPECT_GT(counts.operations, 4 * counts.simulated / 3);
  EXPECT_GT(counts.slowed_in_runs, rounds(1000));  // or nothing was opened
}

TEST(Folding, SharedLinksOpenRunsAndKeepTheTimes) {
  for (const std::int64_t longest : {20, 100'000}) {
    const Counts counts = compare_many({.sharing = true, .longest = longest}, 4, rounds(600));
    EXPECT_GT(counts.operations, 4 * counts.simulated / 3);
    EXPECT_GT(counts.slowed_in_runs, sampled() ? 20 : 200);
  }
}

TEST(Folding, EverythingAtOnceKeepsTheTimes) {
  for (const std::int64_t longest : {6, 20, 100'000}) {
    const Counts counts = compare_many(
        {.sharing = true, .interference = true, .drifts = true, .longest = longest, .free_in = 20}, 5, rounds(600));
    EXPECT_GT(counts.operations, 4 * counts.simulated / 3);
    EXPECT_GT(counts.slowed_in_runs, rounds(500));
    EXPECT_GT(counts.repeats, 0);
  }
}

TEST(Folding, RanksWithAnExtraQueueKeepTheirTimes) {
  compare_many({.sharing = true, .interference = true, .extra = true, .free_in = 20}, 6, rounds(600));
}

TEST(Folding, AChainThatNothingTouchesIsOneNodeAndOneEventAnIteration) {
  TestProblem p;
  const auto rank = p.rank();
  p.compute(rank, 3);
  p.transfer(rank, {.moving = 4, .use = {{0, 1}}, .latency = 2, .blocking = true});
  p.compute(rank, 5);
  const SimProblem problem = p.build();
  EXPECT_EQ(fold(problem, true).nodes.size(), 1u);
  EXPECT_EQ(fold(problem, false).nodes.size(), 3u);
  const FoldedResult result = simulate_folded(problem);
  EXPECT_EQ(result.period_ns, 14);
  EXPECT_EQ(result.work.operations, 3 * result.work.simulated);
}

TEST(Folding, ARunEndsBeforeWhatWaitsOutsideAndAfterWhatIsAwaitedOutside) {
  // a b | c d | e f: a free transfer follows b, and e waits for it. d has no length: a node of its own.
  TestProblem p;
  const auto rank = p.rank();
  std::vector<std::int32_t> chain;
  for (const std::int64_t duration : {1, 2, 3, 0, 5, 6}) chain.push_back(p.compute(rank, duration));
  const auto beside = p.transfer(rank, {.moving = 1});
  p.wait(beside, chain[1]);
  p.wait(chain[4], beside);
  const Folding folding = fold(p.build(), true);
  std::vector<std::int32_t> counts;
  for (const FoldedNode& node : folding.nodes) counts.push_back(node.count);
  EXPECT_EQ(counts, (std::vector<std::int32_t>{2, 1, 1, 2, 1}));
}

TEST(Folding, ARunThatIsDisturbedForAWhileIsSlowedExactlyThere) {
  // Rank 0: ten operations of 10. Rank 1 computes 25 and then sends rank 0 something for 20 (25 to 45), which slows
  // rank 0 to 1/1.25 meanwhile: its third operation has done 5 of 10 by 25, the rest takes 6.25, to 32 (rounded up);
  // from 32 to 45 at 0.8 another 10.4: the fourth ends at 44.5, rounded up to 45; all others are 10 long.
  TestProblem p;
  const auto r0 = p.rank(0.25, 0), r1 = p.rank();
  std::vector<std::int32_t> chain;
  for (int i = 0; i < 10; ++i) chain.push_back(p.compute(r0, 10));
  const auto work = p.compute(r1, 25);
  const auto there = p.transfer(r0, {.moving = 20, .joint = 0}), from = p.transfer(r1, {.moving = 20, .joint = 0});
  p.wait(from, work);
  p.wait(work, chain.back(), 1);
  p.wait(chain.front(), there, 1);
  const SimProblem problem = p.build();
  const SimResult result = simulate(problem);
  const std::vector<std::int64_t> ends = {10, 20, 32, 45, 55, 65, 75, 85, 95, 105};
  for (std::size_t i = 0; i < chain.size(); ++i) EXPECT_EQ(end_of(result, chain[i]), ends[i]);
  // In an iteration: the fold closed, opened (the third and fourth on their own), closed again; work and two members.
  const FoldedResult folded = simulate_folded(problem);
  EXPECT_EQ(folded.iterations.front().slowed.size(), 2u);
  EXPECT_EQ(folded.work.operations / 13, folded.work.simulated / 7);
}

}  // namespace
}  // namespace weft::test
