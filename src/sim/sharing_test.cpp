// Transfers that share resources, and compute and transfers that slow each other down. All expectations are fluid
// limits worked out by hand.
#include <gtest/gtest.h>

#include "sim/engine.hpp"
#include "sim/test_problems.hpp"

namespace weft::test {
namespace {

// Transfers that all start at 0, each on a rank of its own, and the next iteration of all of them after this one.
class Together {
 public:
  explicit Together(std::vector<Message> messages) {
    for (Message& message : messages) transfers_.push_back(p_.transfer(p_.rank(), std::move(message)));
    const auto end = p_.compute(p_.rank(), 1);
    for (const auto t : transfers_) {
      p_.wait(end, t);
      p_.wait(t, end, 1);
    }
  }
  std::vector<std::int64_t> ends() const {
    const SimResult result = simulate(p_.build());
    std::vector<std::int64_t> ends;
    for (const auto t : transfers_) ends.push_back(end_of(result, t));
    return ends;
  }

 private:
  TestProblem p_;
  std::vector<std::int32_t> transfers_;
};

using Ends = std::vector<std::int64_t>;

TEST(Sharing, TwoEqualTransfersOnOneResourceTakeTwiceAsLong) {
  EXPECT_EQ(Together({{.moving = 10, .use = {{0, 1}}}, {.moving = 10, .use = {{0, 1}}}}).ends(), (Ends{20, 20}));
}

TEST(Sharing, TheLongerOfTwoSpeedsUpWhenTheShorterEnds) {
  // Half speed each: 4 ends at 8; of 10, 4 are done, 6 remain at full speed: 14.
  EXPECT_EQ(Together({{.moving = 10, .use = {{0, 1}}}, {.moving = 4, .use = {{0, 1}}}}).ends(), (Ends{14, 8}));
}

TEST(Sharing, OppositeDirectionsShareOnlyAHalfDuplexLink) {
  EXPECT_EQ(Together({{.moving = 10, .use = {{0, 1}}}, {.moving = 10, .use = {{1, 1}}}}).ends(), (Ends{10, 10}));
  EXPECT_EQ(Together({{.moving = 10, .use = {{0, 1}}}, {.moving = 10, .use = {{0, 1}}}}).ends(), (Ends{20, 20}));
}

TEST(Sharing, SharesThatAddUpToOneDisturbNobody) {
  EXPECT_EQ(Together({{.moving = 10, .use = {{0, 0.4}}}, {.moving = 7, .use = {{0, 0.6}}}}).ends(), (Ends{10, 7}));
}

TEST(Sharing, ATransferOverTwoResourcesRunsAtTheFullerOnesPace) {
  // Resource 1 carries 0.5 + 1 = 1.5 at full speed, so both run at 2/3: 10 takes 15. Resource 0 is never full.
  EXPECT_EQ(Together({{.moving = 10, .use = {{0, 1}, {1, 0.5}}}, {.moving = 10, .use = {{1, 1}}}}).ends(),
            (Ends{15, 15}));
}

TEST(Sharing, WhatATransferHeldUpElsewhereLeavesGoesToTheOthers) {
  // Three on resource 1: 1/3 each. The second of them also uses resource 0 and leaves 2/3 of it to the first.
  // 12 at 2/3: 18. The others stay at 1/3 (resource 1 is still full): 8 takes 24.
  EXPECT_EQ(Together({{.moving = 12, .use = {{0, 1}}},
                      {.moving = 8, .use = {{0, 1}, {1, 1}}},
                      {.moving = 8, .use = {{1, 1}}},
                      {.moving = 8, .use = {{1, 1}}}})
                .ends(),
            (Ends{18, 24, 24, 24}));
}

TEST(Sharing, LatencyIsNotShared) {
  // Both wait out 5 side by side, then 10 at half speed each: 25.
  EXPECT_EQ(
      Together({{.moving = 10, .use = {{0, 1}}, .latency = 5}, {.moving = 10, .use = {{0, 1}}, .latency = 5}}).ends(),
      (Ends{25, 25}));
  // The first moves alone from 5 to 9 (4 done); its other 6 at half speed end at 21, by when the second has done 6;
  // its last 4 take until 25.
  EXPECT_EQ(
      Together({{.moving = 10, .use = {{0, 1}}, .latency = 5}, {.moving = 10, .use = {{0, 1}}, .latency = 9}}).ends(),
      (Ends{21, 25}));
}

// One compute operation and one transfer that start together at 0; the next of each waits for both.
struct Pair {
  std::int64_t compute_end, transfer_end;
  friend bool operator==(const Pair&, const Pair&) = default;
};
Pair side_by_side(SimRank interference, std::int64_t compute, Message message) {
  TestProblem p;
  const auto rank = p.rank(interference.compute_slowdown, interference.transfer_slowdown);
  const auto c = p.compute(rank, compute);
  const auto t = p.transfer(rank, std::move(message));
  p.wait(c, t, 1);
  p.wait(t, c, 1);
  const SimResult result = simulate(p.build());
  return {end_of(result, c), end_of(result, t)};
}

TEST(Interference, ComputeRunsSlowerWhileATransferIsUnderWay) {
  // 50 ns at 1/1.25 do 40 of 100; the other 60 at full speed: 110.
  EXPECT_EQ(side_by_side({0.25, 0}, 100, {.moving = 50}), (Pair{110, 50}));
  EXPECT_EQ(side_by_side({0.25, 0}, 100, {.moving = 30, .latency = 20}), (Pair{110, 50}));  // latency is under way too
  EXPECT_EQ(side_by_side({0.25, 0}, 100, {.moving = 500}), (Pair{125, 500}));
}

TEST(Interference, ATransferRunsSlowerWhileItsRankComputes) {
  // 30 ns at 1/1.5 do 20 of 50; the other 30 at full speed: 60.
  EXPECT_EQ(side_by_side({0, 0.5}, 30, {.moving = 50}), (Pair{30, 60}));
}

TEST(Interference, BothSlowEachOtherAtOnce) {
  // The transfer outlasts compute: 40 * 1.25 = 50. By then it has done 50 / 2 = 25 of 100; the other 75: 125.
  EXPECT_EQ(side_by_side({0.25, 1}, 40, {.moving = 100}), (Pair{50, 125}));
}

TEST(Interference, CountsFromTheInstantAtWhichOneOperationEndsAndTheNextBegins) {
  // a ends at 10; at 10 both b and the transfer start. 30 at 1/1.5 takes 45: until 55, with b still running.
  for (const std::int64_t latency : {0, 10}) {
    TestProblem p;
    const auto rank = p.rank(0, 0.5);
    const auto a = p.compute(rank, 10), b = p.compute(rank, 60);
    const auto t = p.transfer(rank, {.moving = 30, .latency = latency});
    if (latency == 0) p.wait(t, a);  // with a latency of 10 it starts to move at 10 as well
    p.wait(t, b, 1);
    p.wait(a, t, 1);
    const SimResult result = simulate(p.build());
    EXPECT_EQ(end_of(result, t), 55) << "latency " << latency;
    EXPECT_EQ(end_of(result, b), 70);
  }
}

TEST(Interference, ReachesEveryMemberOfAJointTransfer) {
  // Rank 1 computes 30 beside the transfer: 20 of 50 are done by 30, 60 for both. Rank 0 only waits.
  TestProblem p;
  const auto r0 = p.rank(0, 0.5), r1 = p.rank(0, 0.5);
  const auto c = p.compute(r1, 30);
  const auto t0 = p.transfer(r0, {.moving = 50, .joint = 0}), t1 = p.transfer(r1, {.moving = 50, .joint = 0});
  p.wait(c, t1, 1);
  p.wait(t0, c, 1);
  const SimResult result = simulate(p.build());
  EXPECT_EQ(end_of(result, t0), 60);
  EXPECT_EQ(end_of(result, t1), 60);
}

// Rank 0 begins a joint transfer at 0, rank 1 after 50 ns; then it moves for 30. Returns when rank 0's compute ends.
std::int64_t end_beside_waiting(double compute_slowdown, double further_slowdown, double waiting_slowdown, bool two) {
  TestProblem p;
  const auto r0 = p.rank(compute_slowdown, 0, 0, further_slowdown, waiting_slowdown), r1 = p.rank();
  const auto c0 = p.compute(r0, 100), c1 = p.compute(r1, 50);
  std::vector<std::int32_t> all{c0, c1};
  for (std::int32_t joint = 0; joint < (two ? 2 : 1); ++joint) {
    all.push_back(p.transfer(r0, {.moving = 30, .joint = joint}));
    all.push_back(p.transfer(r1, {.moving = 30, .joint = joint}));
    p.wait(all.back(), c1);
  }
  for (const auto next : all) {
    for (const auto before : all) p.wait(next, before, 1);
  }
  return end_of(simulate(p.build()), c0);
}

TEST(Interference, OfATransferBeginsWhereItWaitsForOthers) {
  // 50 ns at 1/2 do 25, 30 at 1/1.5 do 20; the other 55 at full speed: 135.
  EXPECT_EQ(end_beside_waiting(0.5, 0, 1, false), 135);
  EXPECT_EQ(end_beside_waiting(0.5, 0, 0, false), 110);  // 30 ns at 1/1.5
  // Two that wait and then move at once: 50 ns at 1/2.5 do 20, 30 at 1/2 do 15; the other 65: 145.
  EXPECT_EQ(end_beside_waiting(0.5, 0.5, 1, true), 145);
}

TEST(Interference, AndSharingMultiply) {
  // The other transfer keeps its half (the slowed one still holds its share): 40. The slowed one runs at half of 1/1.5
  // while rank 0 computes: 24 ns do 8. From 24 to 40 half speed does 8 more; the last 4 alone: 44.
  TestProblem p;
  const auto r0 = p.rank(0, 0.5), r1 = p.rank();
  const auto c = p.compute(r0, 24);
  const auto slowed = p.transfer(r0, {.moving = 20, .use = {{0, 1}}});
  const auto other = p.transfer(r1, {.moving = 20, .use = {{0, 1}}});
  for (const auto next : {c, slowed, other}) {
    for (const auto before : {c, slowed, other}) p.wait(next, before, 1);
  }
  const SimResult result = simulate(p.build());
  EXPECT_EQ(end_of(result, other), 40);
  EXPECT_EQ(end_of(result, slowed), 44);
}

}  // namespace
}  // namespace weft::test
