#include "io/step_svg.hpp"

#include <gtest/gtest.h>

#include <array>
#include <sstream>
#include <string>
#include <vector>

#include "io/step_bars.hpp"
#include "io/test_svg.hpp"
#include "timeline/test_timeline.hpp"

namespace weft {
namespace {

using test::count;
using test::expect_well_formed;
using test::TestTimeline;

constexpr auto kForward = static_cast<std::int32_t>(ComputeColour::forward);
constexpr auto kWaiting = static_cast<std::int32_t>(ComputeColour::waiting);
constexpr auto kGradients = static_cast<std::int32_t>(TrafficKind::dp_grad);

// A period of 1,000 ns from 100 on: compute 100..400 and 700..1100, between them a transfer of 400..700 that the second
// computation waits for, and one of 600..900 that overlaps it.
Timeline exposed_transfer() {
  TestTimeline test;
  const std::int32_t rank = test.rank();
  const std::int32_t first = test.compute(rank, 300), second = test.compute(rank, 400);
  const std::int32_t awaited = test.transfer(rank, TrafficKind::dp_grad), free = test.transfer(rank, TrafficKind::tp);
  test.wait(awaited, {first});
  test.wait(second, {awaited});
  test.run(first, 100, 400);
  test.run(second, 700, 1100);
  test.run(awaited, 400, 700);
  test.run(free, 600, 900);
  test.window(100, 1000);
  return test.build();
}

std::vector<RankBars> bars_of(const Timeline& timeline, std::int64_t pixel = 1) {
  return step_bars(timeline, account(timeline), Nanos{pixel});
}

TEST(StepBars, ReachFromBeginToEndOfWhatRan) {
  const std::vector<RankBars> ranks = bars_of(exposed_transfer());
  ASSERT_EQ(ranks.size(), 1U);
  EXPECT_EQ(ranks[0].name, "stage 0");
  const std::vector<StepBar> compute{
      {kForward, Nanos{0}, Nanos{300}}, {kWaiting, Nanos{300}, Nanos{600}}, {kForward, Nanos{600}, Nanos{1000}}};
  EXPECT_EQ(ranks[0].compute, compute);
  const std::vector<StepBar> gradients{{kGradients, Nanos{300}, Nanos{600}}};
  EXPECT_EQ(ranks[0].transfers[kGradients], gradients);
  ASSERT_EQ(ranks[0].transfers[TrafficKind::tp].size(), 1U);
  EXPECT_TRUE(ranks[0].transfers[TrafficKind::pp].empty());
}

TEST(StepBars, AreCutOffWhereTheStepBeginsAndEnds) {
  Timeline timeline = exposed_transfer();
  timeline.steady_begin = Nanos{200};  // the first computation began 100 ns earlier, and the step ends 100 ns later
  const std::vector<StepBar> compute = bars_of(timeline)[0].compute;
  EXPECT_EQ(compute.front().begin, Nanos{0});
  EXPECT_EQ(compute.front().end, Nanos{200});
  EXPECT_EQ(compute.back().end, Nanos{900});
}

TEST(StepBars, OfOneColourThatTouchAreOne) {
  TestTimeline test;
  const std::int32_t rank = test.rank();
  for (std::int64_t i = 0; i < 5; ++i) test.run(test.compute(rank, 10), 10 * i, 10 * (i + 1));
  test.window(0, 50);
  const std::vector<StepBar> one{{kForward, Nanos{0}, Nanos{50}}};
  EXPECT_EQ(bars_of(test.build())[0].compute, one);
}

// Ten operations of 3 ns, one every 10 ns. A pixel of 50 ns holds five: 0..50 up to where the next group begins, and
// 50..93 with nothing behind it. Their areas are the 15 ns that ran in each.
TEST(StepBars, ShorterThanAPixelAreStacksAsHighAsTheirShareOfTime) {
  TestTimeline test;
  const std::int32_t rank = test.rank();
  for (std::int64_t i = 0; i < 10; ++i) test.run(test.compute(rank, 3), 10 * i, 10 * i + 3);
  test.window(0, 100);
  const std::vector<StepBar> bars = bars_of(test.build(), 50)[0].compute;
  ASSERT_EQ(bars.size(), 2U);
  EXPECT_EQ(bars[0].begin, Nanos{0});
  EXPECT_EQ(bars[0].end, Nanos{50});
  EXPECT_EQ(bars[1].begin, Nanos{50});
  EXPECT_EQ(bars[1].end, Nanos{93});
  for (const StepBar& bar : bars) {
    EXPECT_EQ(bar.bottom, 0);
    EXPECT_NEAR((bar.top - bar.bottom) * static_cast<double>((bar.end - bar.begin).value), 15, 1e-9);
  }
}

std::string svg_of(const std::vector<StepPanel>& panels, const std::string& title = "a title") {
  std::ostringstream out;
  write_step_svg(out, title, panels);
  return out.str();
}

// The timeline above beside its first half. Bars of a lane of compute are 15 high, of transfers 7: three and two of the
// whole, two and one of the half, in which the transfer of 600..900 does not begin.
TEST(StepSvg, HasABarForEveryBarAndOneScaleForAllPanels) {
  const Timeline timeline = exposed_transfer();
  Timeline faster = timeline;
  faster.period_ns = 500;
  const Accounting accounting = account(timeline), of_faster = account(faster);
  const std::string svg = svg_of({{"serial", timeline, accounting}, {"weft", faster, of_faster}});
  expect_well_formed(svg);
  EXPECT_EQ(count(svg, "v15.00H"), 3U + 2U);
  EXPECT_EQ(count(svg, "v7.00H"), 2U + 1U);
  EXPECT_EQ(count(svg, "<path class=\"w\""), 2U);
  EXPECT_EQ(count(svg, "<path class=\"tp\""), 1U);
  EXPECT_EQ(count(svg, "<path class=\"pp\""), 0U);
  EXPECT_EQ(count(svg, "parameter gathers"), 0U);
  // The plot reaches from 66 to 786 for the 1,000 ns of the longer step: 300 ns are 216 wide, and the half ends at 426.
  EXPECT_EQ(count(svg, "<path class=\"f\" d=\"M66.00 50.00h216.00v15.00H66.00zM498.00 50.00h288.00v15.00H498.00z\"/>"),
            1U);
  EXPECT_EQ(count(svg, "<path class=\"e\" d=\"M786.00 "), 1U);
  EXPECT_EQ(count(svg, "<path class=\"e\" d=\"M426.00 "), 1U);
  EXPECT_EQ(count(svg, "weft: 500 ns a step"), 1U) << svg;
  EXPECT_EQ(count(svg, "2.000 x as fast"), 1U);
}

TEST(StepSvg, IsWellFormedWhateverANameHolds) {
  const Timeline timeline = exposed_transfer();
  const Accounting accounting = account(timeline);
  const std::string svg = svg_of({{"<&\">", timeline, accounting}}, "caf\xc3\xa9 \xff\n]]> a&b");
  expect_well_formed(svg);
  EXPECT_EQ(count(svg, "&lt;&amp;&quot;&gt;: "), 1U);
  EXPECT_EQ(count(svg, "caf\xc3\xa9 ??]]&gt; a&amp;b"), 1U);
}

TEST(StepSvg, ShowsEightOfManyRanks) {
  TestTimeline test;
  for (std::int32_t i = 0; i < 30; ++i) test.run(test.compute(test.rank(), 10), 0, 10);
  test.window(0, 10);
  const Timeline timeline = test.build();
  const Accounting accounting = account(timeline);
  const std::string svg = svg_of({{"serial", timeline, accounting}});
  EXPECT_EQ(count(svg, "<path class=\"f\""), 8U);
  EXPECT_EQ(count(svg, ">stage 0<"), 1U);
  EXPECT_EQ(count(svg, ">stage 29<"), 1U);
  EXPECT_EQ(count(svg, "8 of 30 kinds of ranks"), 1U);
}

}  // namespace
}  // namespace weft
