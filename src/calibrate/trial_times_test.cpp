#include "calibrate/trial_times.hpp"

#include <gtest/gtest.h>

#include "timeline/test_timeline.hpp"

namespace weft {
namespace {

constexpr Bytes kSize{1 << 20};
constexpr LibraryProfile::Group kGather{Collective::all_gather, 2}, kReduce{Collective::all_reduce, 2};

struct Step {
  std::int64_t gather = 50, reduce = 80;
  std::int64_t late = 0;  // each transfer begins so long after what it waits for
  std::int64_t first = 100, second = 200;
};

// First compute, gather, second compute, reduce; one step after the other.
Timeline steps_of(const std::vector<Step>& steps) {
  test::TestTimeline made;
  const std::int32_t rank = made.rank(2);
  const std::int32_t first = made.compute(rank, steps[0].first), second = made.compute(rank, steps[0].second);
  const std::int32_t gathers = made.transfer(rank, TrafficKind::param_gather);
  const std::int32_t reduces = made.transfer(rank, TrafficKind::dp_grad);
  std::int64_t now = 0;
  for (std::int32_t iteration = 0; iteration < std::ssize(steps); ++iteration) {
    const Step& step = steps[iteration];
    const auto run = [&](std::int32_t operation, std::int64_t after, std::int64_t takes) {
      made.run(operation, now + after, now + after + takes, iteration);
      now += after + takes;
    };
    run(first, 0, step.first);
    run(gathers, step.late, step.gather);
    run(second, step.late, step.second);
    run(reduces, step.late, step.reduce);
    now += step.late;
  }
  made.window(0, static_cast<double>(now) / static_cast<double>(steps.size()),
              static_cast<std::int32_t>(steps.size()) - 1);
  Timeline timeline = made.build();
  timeline.names = {"operation", "forward", "dp", "all_gather", "all_reduce"};
  for (const auto& [operation, name] : {std::pair{gathers, 3}, std::pair{reduces, 4}}) {
    timeline.operations[operation].collective = name;
    timeline.operations[operation].group_size = 2;
    timeline.operations[operation].bytes = kSize;
  }
  return timeline;
}

Timeline two_of(const Step& step) {
  return steps_of({step, step});
}

TEST(TrialTimes, CountAllThatComputeWaits) {
  // Predicted without delays: compute waits 50 and 80. Measured: 60 + 2 * 5 and 80 + 2 * 5.
  const TrialRatios ratios = compare_trial(two_of({}), two_of({.gather = 60, .late = 5}));
  ASSERT_EQ(ratios.transfers.size(), 2U);
  EXPECT_DOUBLE_EQ(ratios.transfers.at({kGather, kSize}), 70.0 / 50.0);
  EXPECT_DOUBLE_EQ(ratios.transfers.at({kReduce, kSize}), 90.0 / 80.0);
}

TEST(TrialTimes, LeaveOutWhatIsHidden) {
  Timeline hidden = two_of({});
  hidden.operations[2].group_size = 4;  // another group than the prediction's
  EXPECT_FALSE(compare_trial(two_of({}), hidden).transfers.contains({kGather, kSize}));
}

TEST(TrialTimes, TakeTheStepInTheMiddle) {
  // Of three steps one has a hiccup, in a gather and in compute.
  const Timeline measured =
      steps_of({{.gather = 60}, {.gather = 900, .second = 2'000}, {.gather = 60}, {.gather = 60}});
  const TrialRatios ratios = compare_trial(two_of({}), measured);
  EXPECT_DOUBLE_EQ(ratios.transfers.at({kGather, kSize}), 60.0 / 50.0);
  EXPECT_DOUBLE_EQ(ratios.compute.at("forward"), 1);
}

TEST(TrialTimes, ScaleOperationsByTheirPhase) {
  // Both operations of the step are forward's: (110 + 220) / (100 + 200).
  const TrialRatios ratios = compare_trial(two_of({}), two_of({.first = 110, .second = 220}));
  EXPECT_DOUBLE_EQ(ratios.compute.at("forward"), 1.1);
  const OpKey forward{.phase = Phase::forward}, backward{.phase = Phase::input_grad};
  DeviceProfile device;
  device.operations = {{forward, Nanos{1'000}}, {backward, Nanos{1'000}}};
  scale_by_trial(trial_ratios_from(to_text(ratios)), device);
  EXPECT_EQ(device.operations.at(forward), Nanos{1'100});
  EXPECT_EQ(device.operations.at(backward), Nanos{1'000});
}

TEST(TrialTimes, ScaleSizesByTheNearestOneOfTheirGroup) {
  LibraryProfile library;
  library.measured[kGather] = {{Bytes{16 << 10}, Nanos{1'000}, Nanos{1'500}},
                               {Bytes{4 << 20}, Nanos{10'000}, Nanos{12'000}},
                               {Bytes{64 << 20}, Nanos{600'000}, Nanos{600'000}}};
  library.measured[kReduce] = {{Bytes{1 << 20}, Nanos{5'000}, Nanos{5'000}}};
  const TrialRatios ratios = {.compute = {},
                              .transfers = {{{kGather, Bytes{32 << 10}}, 2.0}, {{kGather, Bytes{32 << 20}}, 1.5}}};
  scale_by_trial(trial_ratios_from(to_text(ratios)), library);
  const std::vector<LibraryProfile::Point>& points = library.measured[kGather];
  EXPECT_EQ(points[0].time, Nanos{2'000});
  EXPECT_EQ(points[0].after_pause, Nanos{3'000});
  EXPECT_EQ(points[1].time, Nanos{15'000});
  EXPECT_EQ(points[2].time, Nanos{900'000});
  EXPECT_EQ(library.measured[kReduce][0].time, Nanos{5'000});
}

}  // namespace
}  // namespace weft
