#include "calibrate/trial_times.hpp"

#include <gtest/gtest.h>

#include "timeline/test_timeline.hpp"

namespace weft {
namespace {

constexpr Bytes kSize{1 << 20};
constexpr LibraryProfile::Group kGather{Collective::all_gather, 2}, kReduce{Collective::all_reduce, 2};

// compute 100, gather, compute 200, reduce; then the next step. Each transfer begins `late` after what it waits for.
Timeline step(std::int64_t gather, std::int64_t reduce, std::int64_t late) {
  test::TestTimeline made;
  const std::int32_t rank = made.rank(2);
  const std::int32_t first = made.compute(rank, 100), second = made.compute(rank, 200);
  const std::int32_t gathers = made.transfer(rank, TrafficKind::param_gather);
  const std::int32_t reduces = made.transfer(rank, TrafficKind::dp_grad);
  std::int64_t now = 0;
  for (std::int32_t iteration = 0; iteration < 2; ++iteration) {
    const auto run = [&](std::int32_t operation, std::int64_t after, std::int64_t takes) {
      made.run(operation, now + after, now + after + takes, iteration);
      now += after + takes;
    };
    run(first, 0, 100);
    run(gathers, late, gather);
    run(second, late, 200);
    run(reduces, late, reduce);
    now += late;
  }
  made.window(0, 300.0 + static_cast<double>(gather + reduce + 4 * late));
  Timeline timeline = made.build();
  timeline.names = {"operation", "forward", "dp", "all_gather", "all_reduce"};
  for (const auto& [operation, name] : {std::pair{gathers, 3}, std::pair{reduces, 4}}) {
    timeline.operations[operation].collective = name;
    timeline.operations[operation].group_size = 2;
    timeline.operations[operation].bytes = kSize;
  }
  return timeline;
}

TEST(TrialTimes, CountAllThatComputeWaits) {
  // Predicted without delays: compute waits 50 and 80. Measured: 60 + 2 * 5 and 80 + 2 * 5.
  const TrialRatios ratios = compare_trial(step(50, 80, 0), step(60, 80, 5));
  ASSERT_EQ(ratios.size(), 2U);
  EXPECT_DOUBLE_EQ(ratios.at({kGather, kSize}), 70.0 / 50.0);
  EXPECT_DOUBLE_EQ(ratios.at({kReduce, kSize}), 90.0 / 80.0);
}

TEST(TrialTimes, LeaveOutWhatIsHidden) {
  Timeline hidden = step(50, 80, 0);
  hidden.operations[2].group_size = 4;  // another group than the prediction's
  EXPECT_FALSE(compare_trial(step(50, 80, 0), hidden).contains({kGather, kSize}));
}

TEST(TrialTimes, ScaleSizesByTheNearestOneOfTheirGroup) {
  LibraryProfile library;
  library.measured[kGather] = {{Bytes{16 << 10}, Nanos{1'000}, Nanos{1'500}},
                               {Bytes{4 << 20}, Nanos{10'000}, Nanos{12'000}},
                               {Bytes{64 << 20}, Nanos{600'000}, Nanos{600'000}}};
  library.measured[kReduce] = {{Bytes{1 << 20}, Nanos{5'000}, Nanos{5'000}}};
  const TrialRatios ratios = {{{kGather, Bytes{32 << 10}}, 2.0}, {{kGather, Bytes{32 << 20}}, 1.5}};
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
