#include "timeline/trace/trace_totals.hpp"

#include <gtest/gtest.h>

#include "timeline/trace/test_device_trace.hpp"
#include "timeline/trace/trace_study.hpp"

namespace weft {
namespace {

using test::TestDeviceTrace;

TraceTotals totals(std::vector<TestDeviceTrace> ranks) {
  std::vector<StudyInput> inputs;
  for (TestDeviceTrace& rank : ranks) inputs.push_back({&rank.trace(), rank.all()});
  return total_operations(study_ranks(std::move(inputs)));
}

TestDeviceTrace one_step(std::int64_t gemm, std::int64_t reduce) {
  TestDeviceTrace t;
  t.compute(7, 0, gemm, "gemm");
  t.communicate(20, gemm, gemm + reduce);
  return t;
}

TEST(TraceTotals, AreMeansOverRanksPerStep) {
  TestDeviceTrace two_steps;
  two_steps.step(1, 0, 100);
  two_steps.step(2, 100, 200);
  const auto a = two_steps.compute(7, 0, 100, "gemm"), b = two_steps.compute(7, 100, 400, "gemm");
  two_steps.trace().device[a].step = 0;
  two_steps.trace().device[b].step = 1;
  const TraceTotals found = totals({two_steps, one_step(1000, 50)});
  EXPECT_EQ(found.ranks, 2);
  EXPECT_DOUBLE_EQ(found.steps, 1.5);
  const OperationTotal& gemm = found.operations.at({KernelKind::computation, "gemm"});
  EXPECT_DOUBLE_EQ(gemm.count, 1);
  EXPECT_DOUBLE_EQ(gemm.time_s, (400.0 / 2 + 1000) / 2 * 1e-9);
  EXPECT_DOUBLE_EQ(found.operations.at({KernelKind::communication, "all_reduce"}).exposed_s, 25e-9);
  EXPECT_DOUBLE_EQ(found.span_s, (200.0 + 1050) / 2 * 1e-9);
}

TEST(TraceTotals, AComparisonSaysWhatAppearedVanishedAndChangedMost) {
  TestDeviceTrace after = one_step(1000, 50);
  after.compute(7, 2000, 2010, "new");
  TestDeviceTrace before = one_step(1000, 90);
  before.compute(7, 2000, 2005, "old");
  const std::vector<OperationChange> changes = compare_totals(totals({before}), totals({after}));
  ASSERT_EQ(changes.size(), 4u);
  EXPECT_EQ(changes[0].name, "all_reduce");
  EXPECT_EQ(changes[0].change, ChangeKind::changed);
  EXPECT_NEAR(changes[0].difference_s(), -40e-9, 1e-15);
  EXPECT_NEAR(changes[0].after.exposed_s, 50e-9, 1e-15);
  EXPECT_EQ(changes[1].name, "new");
  EXPECT_EQ(changes[1].change, ChangeKind::appeared);
  EXPECT_EQ(changes[2].name, "old");
  EXPECT_EQ(changes[2].change, ChangeKind::vanished);
  EXPECT_EQ(changes[3].name, "gemm");
  EXPECT_EQ(changes[3].change, ChangeKind::same);
}

TEST(TraceTotals, LayersOfOurOwnTracesAreOneOperation) {
  TestDeviceTrace t;
  t.trace().source = TraceSource::weft;
  t.compute(0, 0, 10, "layer 0 qkv forward");
  t.compute(0, 10, 30, "layer 1 qkv forward");
  const TraceTotals found = totals({t});
  ASSERT_EQ(found.operations.size(), 1u);
  EXPECT_EQ(found.operations.begin()->first.second, "qkv forward");
  EXPECT_DOUBLE_EQ(found.operations.begin()->second.count, 2);
}

}  // namespace
}  // namespace weft
