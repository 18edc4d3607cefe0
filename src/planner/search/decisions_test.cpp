// The space that policy `weft` searches: which dimensions a layout has, and what each of them changes.
#include "planner/search/decisions.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "planner/test_plans.hpp"

namespace weft {
namespace {

using Space = DecisionSpace;

struct Problem {
  Problem(const Transformer& model, std::string_view cluster, Layout layout, std::int64_t micro_batches = 4)
      : request(test::request(model, parse_cluster(cluster), std::move(layout), micro_batches)),
        graph(test::build(request)),
        space(request, graph) {}

  PlanRequest request;
  StepGraph graph;
  DecisionSpace space;
};

Decisions changed(const DecisionSpace& space, Space::Dimension dimension, std::size_t option) {
  Decisions decisions = space.start();
  decisions.chosen[dimension] = option;
  return decisions;
}

TEST(DecisionSpace, HoldsItsStart) {
  for (const auto& [name, layout] : test::layouts()) {
    SCOPED_TRACE(name);
    const Problem problem(layout.ep > 1 ? test::small_moe() : test::small_gpt(), "dgx-a100:2", layout);
    const Decisions start = problem.space.start();
    ASSERT_EQ(start.chosen.size(), std::size_t{Space::kDimensions});
    for (std::size_t d = 0; d < Space::kDimensions; ++d) EXPECT_LT(start.chosen[d], problem.space.options(d)) << d;
  }
}

// One rank has nothing to communicate: only the order of its operations is left, which is tried with more effort and
// without any.
TEST(DecisionSpace, OfOneRankIsAboutOrderAlone) {
  const Problem problem(test::small_gpt(2), "local:1", {});
  for (const Space::Dimension d :
       {Space::kPairs, Space::kGaps, Space::kForwardRows, Space::kBackwardRows, Space::kForwardExperts,
        Space::kBackwardExperts, Space::kLegs, Space::kQueues, Space::kUrgentFirst, Space::kHoldBack, Space::kReceives,
        Space::kPrefetch, Space::kGradientBuffers, Space::kReduceInGaps}) {
    EXPECT_EQ(problem.space.options(d), 1U) << int{d};
  }
  EXPECT_EQ(problem.space.options(Space::kWeave), 2U);
  EXPECT_EQ(problem.space.options(Space::kWeaveVisits), 2U);
}

TEST(DecisionSpace, HasADimensionWhereTheLayoutHasTheChoice) {
  const auto options = [](const Transformer& model, const Layout& layout, Space::Dimension dimension) {
    return Problem(model, "local:4", layout).space.options(dimension);
  };
  const Transformer gpt = test::small_gpt(4), moe = test::small_moe(4);
  EXPECT_EQ(options(gpt, {}, Space::kUrgentFirst), 2U);
  EXPECT_EQ(options(gpt, {}, Space::kReceives), 1U);
  EXPECT_EQ(options(gpt, {.pp = 4}, Space::kReceives), 2U);
  EXPECT_EQ(options(gpt, {.pp = 4}, Space::kHoldBack), 1U);  // dp is 1: no gradients travel
  EXPECT_EQ(options(gpt, {.pp = 2}, Space::kHoldBack), 2U);
  EXPECT_EQ(options(gpt, {.zero = 2}, Space::kPrefetch), 1U);
  // None, one to four layers, and one to four of which the first are gathered before their pass begins.
  EXPECT_EQ(options(gpt, {.zero = 3}, Space::kPrefetch), 9U);
  EXPECT_EQ(options(gpt, {.pp = 2, .zero = 3}, Space::kPrefetch), 5U);
  EXPECT_EQ(options(gpt, {.zero = 3}, Space::kBuckets), 4U);  // two ways by layer, two within layers
  EXPECT_EQ(options(gpt, {.zero = 1}, Space::kGradientBuffers), 1U);
  EXPECT_EQ(options(gpt, {.zero = 2}, Space::kGradientBuffers), 3U);  // two to four layers
  EXPECT_EQ(options(gpt, {.zero = 2, .reduce_every = Layout::kWholeStep}, Space::kGradientBuffers), 1U);
  EXPECT_GT(options(gpt, {.tp = 2, .etp = 2}, Space::kForwardRows), 1U);
  EXPECT_EQ(options(gpt, {}, Space::kForwardRows), 1U);
  EXPECT_GT(options(moe, {.ep = 2}, Space::kForwardExperts), 1U);
  EXPECT_EQ(options(moe, {.ep = 2}, Space::kReduceInGaps), 2U);
  EXPECT_EQ(options(moe, {}, Space::kForwardExperts), 1U);
}

// One collective that fills the links leaves nothing for a second queue.
TEST(DecisionSpace, HasAsManyQueuesAsFillTheLinks) {
  const auto queues = [](double at_once) {
    PlanRequest request = test::request(test::small_gpt(4), parse_cluster("gpu:4"), {}, 1);
    request.profile.library.at_once = at_once;
    return DecisionSpace(request, test::build(request)).options(Space::kQueues);
  };
  EXPECT_EQ(queues(1), 1U);
  EXPECT_EQ(queues(1.7), 2U);
  EXPECT_EQ(queues(2), 2U);
  EXPECT_EQ(queues(2.4), 3U);
}

// Pairs need traffic inside layers to hide, a second micro-batch, whole gradients, and backwards between forwards.
TEST(DecisionSpace, HasPairsWhereTheyCanBe) {
  const auto pairs = [](const Layout& layout, std::int64_t micro_batches) {
    return Problem(test::small_gpt(4), "local:4", layout, micro_batches).space.options(Space::kPairs);
  };
  const Layout layout{.tp = 2, .pp = 2, .etp = 2};
  EXPECT_EQ(pairs(layout, 4), 2U);
  EXPECT_EQ(pairs(layout, 1), 1U);
  Layout other = layout;
  other.schedule = PipelineSchedule::gpipe;
  EXPECT_EQ(pairs(other, 4), 1U);
  other = layout;
  other.zero = 2;
  EXPECT_EQ(pairs(other, 4), 1U);
  EXPECT_EQ(pairs({.pp = 2}, 4), 1U);
  other = layout;
  other.vpp = 2;
  other.schedule = PipelineSchedule::searched_loops;  // the pairs of the interleaved schedule
  EXPECT_EQ(pairs(other, 4), 2U);
  EXPECT_EQ(pairs(other, 5), 1U);
  other.schedule = PipelineSchedule::searched_waves;
  EXPECT_EQ(pairs(other, 4), 1U);
}

TEST(DecisionSpace, HasEveryPipelineOnce) {
  using enum PipelineSchedule;
  for (const auto& [chunks, schedule] : {std::pair{1, searched}, {2, searched_waves}, {2, searched_loops}}) {
    for (const std::int64_t micro_batches : {1, 4, 32}) {
      const Problem problem(test::small_gpt(8), "local:4", {.pp = 4, .vpp = chunks, .schedule = schedule},
                            micro_batches);
      std::vector<PipelineChoice> seen;
      for (std::size_t option = 0; option < problem.space.options(Space::kPipeline); ++option) {
        seen.push_back(problem.space.overlap(changed(problem.space, Space::kPipeline, option)).order.pipeline);
      }
      EXPECT_GE(seen.size(), 5U);
      for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(std::count(seen.begin(), seen.end(), seen[i]), 1) << i;
    }
  }
}

// Weight gradients hide traffic of layers where a pipeline's backward is split, or may be.
TEST(DecisionSpace, FillsGapsWhereBackwardIsSplit) {
  using enum PipelineSchedule;
  const auto rules = [](const Layout& layout) {
    return Problem(test::small_gpt(4), "local:8", layout).space.options(Space::kGaps);
  };
  const Layout layout{.tp = 2, .pp = 2, .vpp = 2, .etp = 2, .schedule = zbv};
  EXPECT_EQ(rules(layout), 4U);
  EXPECT_EQ(rules({.tp = 2, .pp = 2, .etp = 2, .schedule = searched}), 4U);
  EXPECT_EQ(rules({.tp = 2, .pp = 2, .etp = 2, .schedule = one_f_one_b}), 1U);
  EXPECT_EQ(rules({.pp = 2, .vpp = 2, .schedule = zbv}), 1U);  // no traffic
  Layout other = layout;
  other.zero = 2;
  EXPECT_EQ(rules(other), 1U);
}

// What a dimension decides, taken back to what `from` has: the rest must be equal.
using TakeBack = std::function<void(Overlap& to, const Overlap& from)>;

void expect_changes_only(const DecisionSpace& space, Space::Dimension dimension, const TakeBack& take_back) {
  const Overlap start = space.overlap(space.start());
  ASSERT_GT(space.options(dimension), 1U) << int{dimension};
  for (std::size_t option = 1; option < space.options(dimension); ++option) {
    Overlap overlap = space.overlap(changed(space, dimension, option));
    EXPECT_NE(overlap, start) << int{dimension} << " option " << option;
    take_back(overlap, start);
    EXPECT_EQ(overlap, start) << int{dimension} << " option " << option;
  }
}

TEST(DecisionSpace, NeighboursDifferInWhatTheirDimensionDecides) {
  const Problem sharded(test::small_gpt(4), "local:4", {.pp = 2, .zero = 3});
  expect_changes_only(sharded.space, Space::kPrefetch,
                      [](Overlap& to, const Overlap& from) { to.held.prefetch = from.held.prefetch; });
  expect_changes_only(sharded.space, Space::kGradientBuffers,
                      [](Overlap& to, const Overlap& from) { to.held.gradient_buffers = from.held.gradient_buffers; });
  expect_changes_only(sharded.space, Space::kReceives,
                      [](Overlap& to, const Overlap& from) { to.beside.receives = from.beside.receives; });
  expect_changes_only(sharded.space, Space::kHoldBack,
                      [](Overlap& to, const Overlap& from) { to.order.hold_back = from.order.hold_back; });
  expect_changes_only(sharded.space, Space::kUrgentFirst,
                      [](Overlap& to, const Overlap& from) { to.order.urgent_first = from.order.urgent_first; });
  expect_changes_only(sharded.space, Space::kWeaveVisits,
                      [](Overlap& to, const Overlap& from) { to.weave.visits = from.weave.visits; });
  expect_changes_only(sharded.space, Space::kWeave,
                      [](Overlap& to, const Overlap& from) { to.weave.enabled = from.weave.enabled; });
  const Problem woven(test::small_gpt(4), "local:4", {.tp = 2, .pp = 2, .etp = 2});
  expect_changes_only(woven.space, Space::kPairs,
                      [](Overlap& to, const Overlap& from) { to.weave.pairs = from.weave.pairs; });
  expect_changes_only(woven.space, Space::kForwardRows, [](Overlap& to, const Overlap& from) {
    to.partition.forward_rows = from.partition.forward_rows;
  });
  expect_changes_only(woven.space, Space::kBackwardRows, [](Overlap& to, const Overlap& from) {
    to.partition.backward_rows = from.partition.backward_rows;
  });
  const Problem split(test::small_gpt(4), "local:4",
                      {.tp = 2, .pp = 2, .vpp = 2, .etp = 2, .schedule = PipelineSchedule::zbv});
  expect_changes_only(split.space, Space::kGaps,
                      [](Overlap& to, const Overlap& from) { to.order.gaps = from.order.gaps; });
  const Problem experts(test::small_moe(4), "local:4", {.ep = 2});
  for (const Space::Dimension d : {Space::kForwardExperts, Space::kBackwardExperts}) {
    expect_changes_only(experts.space, d,
                        [](Overlap& to, const Overlap& from) { to.partition.layers = from.partition.layers; });
  }
  expect_changes_only(experts.space, Space::kReduceInGaps,
                      [](Overlap& to, const Overlap& from) { to.order.reduce_in_gaps = from.order.reduce_in_gaps; });
}

// Pairs are woven: without weaving there are none, whatever the point says of them.
TEST(DecisionSpace, NoPairsWithoutWeaving) {
  const Problem problem(test::small_gpt(4), "local:4", {.tp = 2, .pp = 2, .etp = 2});
  Decisions decisions = changed(problem.space, Space::kPairs, 1);
  EXPECT_TRUE(problem.space.overlap(decisions).weave.pairs);
  decisions.chosen[Space::kWeave] = 1;
  EXPECT_FALSE(problem.space.overlap(decisions).weave.enabled);
  EXPECT_FALSE(problem.space.overlap(decisions).weave.pairs);
}

}  // namespace
}  // namespace weft
