// The bound on graphs small enough to find the best schedule by hand.
#include "bound/bound.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

constexpr std::int32_t kCompute = 0, kLink = 1;

class Graph {
 public:
  explicit Graph(std::int32_t resources = 2) { problem.resources = resources; }
  std::int32_t add(std::int32_t resource, double work, double part) {
    BoundNode node;
    node.uses = {{resource, work}};
    node.part_ns = part;
    problem.nodes.push_back(node);
    return static_cast<std::int32_t>(problem.nodes.size()) - 1;
  }
  // One of `count` micro-batches; `each` of them takes that long and is not cut.
  std::int32_t add_micro_batches(std::int32_t resource, double each, int count) {
    const std::int32_t id = add(resource, each * count, each);
    problem.nodes.back().once = count == 1;
    return id;
  }
  void chain(std::initializer_list<std::int32_t> nodes) {
    for (auto to = nodes.begin() + 1; to < nodes.end(); ++to) problem.edges.push_back({*(to - 1), *to, 0});
  }
  void next(std::int32_t from, std::int32_t to) { problem.edges.push_back({from, to, 1}); }
  Bound bound() const { return lower_bound(problem); }

  BoundProblem problem;
};

// compute 10 -> communication 10 -> compute 10 -> communication 10, and again.
Graph alternating(double part) {
  Graph g;
  const auto a = g.add(kCompute, 10, part), b = g.add(kLink, 10, part);
  const auto c = g.add(kCompute, 10, part), d = g.add(kLink, 10, part);
  g.chain({a, b, c, d});
  g.next(d, a);
  return g;
}

TEST(Bound, OfAlternatingComputeAndCommunicationInTwoPartsIs25) {
  // From b to the next b lies c: 5 (a part of b) + 10 (c) + 5 (of d) + 5 (of a) = 25. It is reached:
  //   compute        a1 0-5  a2 5-10  c1 10-15  c2 15-20
  //   communication          b1 5-10  b2 10-15  d1 15-20  d2 20-25, then the next a.
  EXPECT_EQ(alternating(5).bound().period_ns, 25);
}

TEST(Bound, OfTheSameUncutIsTheWholeChain) {
  EXPECT_EQ(alternating(10).bound().period_ns, 40);
}

TEST(Bound, OfALinkThatSavesUpIsLessByThat) {
  // compute 10 -> message 6, whose first 4 go at once after the pause: 10 + 2, and so for both resources.
  Graph g;
  const auto compute = g.add(kCompute, 10, 10), message = g.add(kLink, 6, 2);
  g.chain({compute, message});
  g.next(message, compute);
  g.problem.burst_ns = {0, 4};
  EXPECT_EQ(g.bound().period_ns, 12);
  // Without compute to pause for, the link carries its rate.
  Graph busy;
  const auto only = busy.add(kLink, 6, 2);
  busy.next(only, only);
  busy.problem.burst_ns = {0, 4};
  EXPECT_EQ(busy.bound().period_ns, 6);
}

TEST(Bound, OfTheSameCutFinelyIsTheWorkOfEachResource) {
  EXPECT_NEAR(alternating(1e-9).bound().period_ns, 20, 1e-6);
}

TEST(Bound, IsAtLeastTheWorkOfEveryResource) {
  // Two loops that only meet on the link: 7 + 9.
  Graph g;
  const auto a = g.add(kLink, 7, 7), b = g.add(kLink, 9, 9);
  g.next(a, a);
  g.next(b, b);
  const Bound bound = g.bound();
  EXPECT_EQ(bound.period_ns, 16);
  EXPECT_EQ(bound.resource, kLink);
  EXPECT_EQ(bound.node, -1);
}

TEST(Bound, LetsAnUpdateFollowTheReductionPartByPart) {
  // x (compute 10) -> reduction (10) -> update (compute 10), all in halves, the next x after the whole update. Reached:
  //   compute        x1 0-5  x2 5-10  u1 10-15  u2 15-20, then the next x
  //   communication          r1 5-10  r2 10-15
  // A bound that took both x and the part of the reduction between x and u as whole would say 25.
  Graph g;
  const auto x = g.add(kCompute, 10, 5), r = g.add(kLink, 10, 5), u = g.add(kCompute, 10, 5);
  g.chain({x, r, u});
  g.next(u, x);
  EXPECT_EQ(g.bound().period_ns, 20);
}

// forward 20, backward 20 (parts of 5) -> two reductions of 4 (parts of 1) -> norm of no length -> two updates of 8
// (parts of 2) -> the next forward.
double clipped(bool barrier) {
  Graph g;
  const auto forward = g.add(kCompute, 20, 5), backward = g.add(kCompute, 20, 5);
  const auto norm = g.add(kCompute, 0, 0);
  g.problem.nodes.back().barrier = barrier;
  g.chain({forward, backward});
  for (int i = 0; i < 2; ++i) {
    const auto reduction = g.add(kLink, 4, 1), update = g.add(kCompute, 8, 2);
    g.chain({backward, reduction, norm, update});
    g.next(update, forward);
  }
  return g.bound().period_ns;
}

TEST(Bound, AClippingBarrierExposesTheLastPartOfTheLastReduction) {
  // Compute is 20 + 20 + 2 * 8 = 56. Where every update waits for the norm, nothing is left to compute while the last
  // part of the last reduction (1) travels: 57. Where it need not, the first update runs meanwhile.
  EXPECT_EQ(clipped(true), 57);
  EXPECT_EQ(clipped(false), 56);
}

TEST(Bound, CountsThePipelinesFillAndDrain) {
  // Three stages, four micro-batches, forward 3, backward 6, update 1, nothing cut. After stage 0's update the last
  // stage waits for two forwards (6), works 4 * 9 = 36, then two backwards (12) and stage 0's update (1) remain: 55.
  // That is (m + p - 1)(f + b) + 1, what GPipe and 1F1B take.
  Graph g(3);
  constexpr int kLegs = 3, kMicroBatches = 4;
  std::vector<std::int32_t> forward, backward, update;
  for (std::int32_t s = 0; s < kLegs; ++s) {
    forward.push_back(g.add_micro_batches(s, 3, kMicroBatches));
    backward.push_back(g.add_micro_batches(s, 6, kMicroBatches));
    update.push_back(g.add(s, 1, 1));
  }
  g.chain({forward[0], forward[1], forward[2], backward[2], backward[1], backward[0]});
  for (std::size_t s = 0; s < kLegs; ++s) {
    g.chain({backward[s], update[s]});
    g.next(update[s], forward[s]);
  }
  const Bound bound = g.bound();
  EXPECT_EQ(bound.period_ns, 55);
  EXPECT_EQ(bound.resource, 2);
  EXPECT_EQ(bound.node, update[0]);
  EXPECT_EQ(bound.head_ns, 6);
  EXPECT_EQ(bound.work_ns, 36);
  EXPECT_EQ(bound.tail_ns, 13);
}

TEST(Bound, DoesNotChainDifferentMicroBatches) {
  // Two micro-batches of a -> b on different resources overlap: after the update (1) a, then both b's: 1 + 4 + 8; or
  // both a's, then the last b: the same. Were a micro-batch an operation like any other, a -> b would count 8 + 8.
  Graph g;
  const auto a = g.add_micro_batches(kCompute, 4, 2), b = g.add_micro_batches(kLink, 4, 2);
  const auto update = g.add(kCompute, 1, 1);
  g.chain({a, b, update});
  g.next(update, a);
  EXPECT_EQ(g.bound().period_ns, 13);
}

}  // namespace
}  // namespace weft
