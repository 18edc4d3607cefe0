#include "timeline/compare.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "timeline/test_timeline.hpp"

namespace weft {
namespace {

using test::TestTimeline;

TEST(KindOfOperation, LeavesOutLayerAndPart) {
  EXPECT_EQ(kind_of_operation("layer 3 qkv forward"), "qkv forward");
  EXPECT_EQ(kind_of_operation("layer 12 qkv grad_reduce optimizer part 7"), "qkv grad_reduce optimizer");
  EXPECT_EQ(kind_of_operation("head forward part 10"), "head forward");
  EXPECT_EQ(kind_of_operation("positions grad_reduce optimizer part 2 of 11"), "positions grad_reduce optimizer");
  EXPECT_EQ(kind_of_operation("head forward part 2 of"), "head forward part 2 of");
  EXPECT_EQ(kind_of_operation("head forward part of 3"), "head forward part of 3");
  EXPECT_EQ(kind_of_operation("update optimizer"), "update optimizer");
  // Nothing that only looks like it.
  EXPECT_EQ(kind_of_operation("layer norm"), "layer norm");
  EXPECT_EQ(kind_of_operation("layer 3"), "layer 3");
  EXPECT_EQ(kind_of_operation("gemm_128"), "gemm_128");
  EXPECT_EQ(kind_of_operation("part 4"), "part 4");
  EXPECT_EQ(kind_of_operation(""), "");
}

// Two layers and a reduction that hides behind nothing: qkv 10 and 10, reduce 30, per step.
Timeline predicted_step() {
  TestTimeline t;
  const auto r = t.rank(2);  // stands for both ranks
  const auto a = t.compute(r, 10), b = t.compute(r, 10), c = t.transfer(r, TrafficKind::dp_grad);
  t.wait(b, {a});
  t.wait(c, {b});
  t.wait(a, {c}, 1);
  for (std::int32_t i = 0; i < 3; ++i) {
    t.run(a, 50 * i, 50 * i + 10, i);
    t.run(b, 50 * i + 10, 50 * i + 20, i);
    t.run(c, 50 * i + 20, 50 * i + 50, i);
  }
  t.window(50, 50, 1);
  Timeline timeline = t.build();
  timeline.steady_first = 1;
  timeline.names = {"layer 0 qkv forward", "layer 1 qkv forward", "qkv grad_reduce optimizer", "forward"};
  for (std::size_t i = 0; i < 3; ++i) timeline.operations[i].name = static_cast<std::int32_t>(i);
  return timeline;
}

// The same on two ranks of their own, over iterations 1 and 2: iteration i of rank r takes qkv 11 + r and 13 + r, then
// 24 - r..30 + 24 of reduction, an update of 2 that was not predicted, a gap.
Timeline measured_steps() {
  TestTimeline t;
  std::vector<std::int32_t> ops;
  for (int r = 0; r < 2; ++r) {
    const auto rank = t.rank();
    const auto a = t.compute(rank, 10), b = t.compute(rank, 10), c = t.transfer(rank, TrafficKind::dp_grad, 5);
    const auto d = t.compute(rank, 2);
    t.wait(b, {a});
    t.wait(c, {b});
    t.wait(d, {c});
    t.wait(a, {d}, 1);
    for (const auto op : {a, b, c, d}) ops.push_back(op);
    for (std::int32_t i = 0; i < 3; ++i) {
      const std::int64_t begin = 60 * i, first = 11 + r, second = 13 + r;
      t.run(a, begin, begin + first, i);
      t.run(b, begin + first, begin + first + second, i);
      t.run(c, begin + 26, begin + 56, i);
      t.run(d, begin + 56, begin + 58, i);
    }
  }
  t.window(60, 60, 2);
  Timeline timeline = t.build();
  timeline.steady_first = 1;
  timeline.measured = true;
  timeline.names = {"layer 0 qkv forward", "layer 1 qkv forward", "qkv grad_reduce optimizer", "update optimizer",
                    "forward"};
  for (std::size_t i = 0; i < ops.size(); ++i) {
    timeline.operations[ops[i]].name = static_cast<std::int32_t>(i % 4);
  }
  return timeline;
}

TEST(CompareTimelines, GivesMeansOfEveryKindAndTheLargestDifferenceFirst) {
  const TimelineComparison comparison = compare_timelines(predicted_step(), measured_steps());
  EXPECT_NEAR(comparison.predicted.step_s, 50e-9, 1e-18);
  EXPECT_NEAR(comparison.measured.step_s, 60e-9, 1e-18);
  EXPECT_NEAR(comparison.prediction_error_pct(), -100.0 / 6, 1e-9);
  ASSERT_EQ(comparison.kinds.size(), 3U);
  // qkv: twice a step, 10 each; measured 11, 13, 12, 14: mean 12.5, so 25 instead of 20.
  const KindComparison& qkv = comparison.kinds[0];
  EXPECT_EQ(qkv.kind, "qkv forward");
  EXPECT_EQ(qkv.activity, Activity::compute);
  EXPECT_DOUBLE_EQ(qkv.predicted.executions, 2);
  EXPECT_DOUBLE_EQ(qkv.measured.executions, 2);
  EXPECT_NEAR(qkv.predicted.mean_s, 10e-9, 1e-18);
  EXPECT_NEAR(qkv.measured.mean_s, 12.5e-9, 1e-18);
  EXPECT_NEAR(qkv.difference_s(), 5e-9, 1e-18);
  // Measured only: 2 a step.
  const KindComparison& update = comparison.kinds[1];
  EXPECT_EQ(update.kind, "update optimizer");
  EXPECT_EQ(update.predicted, KindTimes{});
  EXPECT_NEAR(update.difference_s(), 2e-9, 1e-18);
  const KindComparison& reduce = comparison.kinds[2];
  EXPECT_EQ(reduce.kind, "qkv grad_reduce optimizer");
  EXPECT_EQ(reduce.activity, Activity::transfer);
  EXPECT_NEAR(reduce.difference_s(), 0, 1e-18);
}

TEST(CompareTimelines, FoldedSpansCountAsTheirOperations) {
  Timeline folded = predicted_step();
  folded.spans.clear();
  for (std::int32_t i = 0; i < 3; ++i) {
    folded.folded.push_back({0, 2, i, Nanos{50 * i}});
    folded.spans.push_back({2, i, Nanos{50 * i + 20}, Nanos{50 * i + 20}, Nanos{50 * i + 20}, Nanos{50 * i + 50}});
  }
  const auto plain = compare_timelines(predicted_step(), measured_steps());
  const auto same = compare_timelines(folded, measured_steps());
  ASSERT_EQ(same.kinds.size(), plain.kinds.size());
  for (std::size_t i = 0; i < plain.kinds.size(); ++i) EXPECT_EQ(same.kinds[i].predicted, plain.kinds[i].predicted);
}

TEST(CompareTimelines, ATimelineWithoutNamesIsRefused) {
  Timeline nameless = predicted_step();
  nameless.names.clear();
  EXPECT_THROW(compare_timelines(nameless, measured_steps()), Error);
}

}  // namespace
}  // namespace weft
