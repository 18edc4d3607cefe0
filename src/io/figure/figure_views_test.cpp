// Figures against lengths that are derived by hand, and against files that anyone may have written.
#include "io/figure/figure_views.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.hpp"
#include "io/figure/exposure_tree.hpp"
#include "io/figure/figure_sheet.hpp"
#include "io/figure/group_traffic.hpp"
#include "io/figure/pipeline_boxes.hpp"
#include "io/test_svg.hpp"
#include "timeline/test_timeline.hpp"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;
using test::count;
using test::expect_well_formed;
using test::TestTimeline;

// Two ranks, the second standing for three, in a period of 1,000 ns from 0 on. The first computes 0..400 and 700..1000
// and waits 300 ns between for a transfer; the second waits 100 ns, from 200 to 300.
PageTimeline two_ranks() {
  TestTimeline test;
  const std::int32_t first = test.rank(1), second = test.rank(3);
  const std::int32_t a = test.compute(first, 400), b = test.compute(first, 300), c = test.compute(second, 200),
                     d = test.compute(second, 700), awaited = test.transfer(first, TrafficKind::dp_grad),
                     other = test.transfer(second, TrafficKind::dp_grad);
  test.wait(awaited, {a});
  test.wait(b, {awaited});
  test.wait(other, {c});
  test.wait(d, {other});
  test.run(a, 0, 400);
  test.run(b, 700, 1000);
  test.run(c, 0, 200);
  test.run(d, 300, 1000);
  test.run(awaited, 400, 700);
  test.run(other, 200, 300);
  test.window(0, 1000);
  Timeline timeline = test.build();
  timeline.names = {"layer 12 reduce", "forward", "dp"};
  timeline.memory = {{{Nanos{0}, Bytes{5}}, {Nanos{500}, Bytes{9}}}, {}};
  PageTimeline page = page_timeline(timeline, account(timeline));
  page.title = "serial, predicted";
  return page;
}

// One rank of four waited 300 ns and three waited 100: 600 / 4 = 150 ns, 75 of them on either stage.
TEST(ExposureTree, AddsUpToTheExposedTimeOfAMeanRank) {
  const ExposureNode root = exposure_tree(two_ranks());
  EXPECT_NEAR(root.seconds, 150e-9, 1e-15);
  ASSERT_EQ(root.children.size(), 1U);
  EXPECT_EQ(root.children[0].name, "dp_grad");
  ASSERT_EQ(root.children[0].children.size(), 1U);
  const ExposureNode& transfer = root.children[0].children[0];
  EXPECT_EQ(transfer.name, "layer # reduce");
  ASSERT_EQ(transfer.children.size(), 2U);
  for (const ExposureNode& stage : transfer.children) EXPECT_NEAR(stage.seconds, 75e-9, 1e-15);
}

// 1,024 bytes of the first rank in 400..700 and of the second, for three, in 200..300; anything but a collective that
// is known sends all of its buffer. In tenths of the period: 3072 / 4 bytes in the third, 1024 / 3 / 4 in each of
// three.
TEST(GroupTraffic, IsWhatAMeanRankSends) {
  const PageTimeline page = two_ranks();
  const std::vector<GroupTraffic> groups = traffic_of_groups(page.timeline, Nanos{0}, Nanos{1000}, 10);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].group, "dp");
  const double share_seconds = 100e-9;
  const std::vector<double> bytes = {0, 0, 768, 0, 1024 / 12.0, 1024 / 12.0, 1024 / 12.0, 0, 0, 0};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_NEAR(groups[0].bytes_per_second[i] * share_seconds, bytes[i], 1e-6) << i;
  }
}

// Chan et al., Collective communication: theory, practice, and experience, 2007: the least that a rank must send.
TEST(GroupTraffic, CollectivesSendTheirShareOfTheBuffer) {
  EXPECT_DOUBLE_EQ(sent_share("all_reduce", 4), 1.5);
  EXPECT_DOUBLE_EQ(sent_share("all_gather", 4), 0.75);
  EXPECT_DOUBLE_EQ(sent_share("reduce_scatter", 2), 0.5);
  EXPECT_DOUBLE_EQ(sent_share("all_reduce", 1), 0);
  EXPECT_DOUBLE_EQ(sent_share("send_recv", 2), 0.5);  // of each end
}

// Forward of 0 in two operations, then forward of 1, backward of 0 with its gradients of weights, those of 1 alone.
TEST(PipelineBoxes, AreThePassesOfMicroBatches) {
  TestTimeline test;
  const std::int32_t rank = test.rank();
  std::vector<std::int32_t> operations;
  for (std::int64_t i = 0; i < 7; ++i) {
    operations.push_back(test.compute(rank, 10));
    test.run(operations.back(), 10 * i, 10 * i + 10);
  }
  test.window(0, 70);
  Timeline timeline = test.build();
  timeline.names = {"operation", "forward", "input_grad", "weight_grad", "optimizer"};
  const std::int32_t batch[] = {0, 0, 1, 0, 0, 1, -1}, phase[] = {1, 1, 1, 2, 3, 3, 4};
  for (std::size_t i = 0; i < 7; ++i) {
    timeline.operations[i].micro_batch = MicroBatch{batch[i]};
    timeline.operations[i].phase = phase[i];
  }
  const std::vector<PipelineBox> expected = {{0, 0, PassDirection::forward, Nanos{0}, Nanos{20}},
                                             {1, 0, PassDirection::forward, Nanos{20}, Nanos{30}},
                                             {0, 0, PassDirection::backward, Nanos{30}, Nanos{50}},
                                             {1, 0, PassDirection::weights, Nanos{50}, Nanos{60}},
                                             {-1, 0, PassDirection::update, Nanos{60}, Nanos{70}}};
  EXPECT_EQ(pipeline_boxes(timeline)[0], expected);
}

Json two_policies() {
  return Json::parse(R"({"best": "fast", "bound_s": 0.5, "policies": {
    "slow": {"step_s": 2, "compute_s": 1, "exposed_by_kind": {"tp": 1},
             "memory": [{"stage": "stage 0", "bytes": 2, "device_bytes": 4, "terms": {"weights": 1, "other": 1}}]},
    "fast": {"step_s": 1, "compute_s": 1}}})");
}

// The longest bar, 2 s, is 520 wide and begins at 150: a second is 260, and the bound of 0.5 s lies at 280.
TEST(Headline, BarsAreAsLongAsTheirTimes) {
  const std::string svg = draw_headline({"a model", two_policies(), "fast", {}});
  expect_well_formed(svg);
  EXPECT_EQ(count(svg, "x=\"150.00\""), 2U + 1U);  // the bars, and the first square of the legend
  EXPECT_EQ(count(svg, "width=\"260.00\" height=\"22.00\" fill=\"#6f89a8\""), 2U);
  EXPECT_EQ(count(svg, "width=\"260.00\" height=\"22.00\" fill=\"#b34700\""), 1U);  // exposed: TP
  EXPECT_EQ(count(svg, "<path d=\"M280.00 "), 2U);
  EXPECT_EQ(count(svg, "+300.0 % over bound"), 1U);
}

// 4 bytes of room are 520 wide, so each of the two terms of a byte is 130.
TEST(Memory, TermsAreAsLongAsTheirBytes) {
  const std::string svg = draw_memory({"a model", two_policies(), "slow", {}});
  expect_well_formed(svg);
  EXPECT_EQ(count(svg, "width=\"130.00\" height=\"22.00\""), 2U);
  EXPECT_THROW(draw_memory({"a model", two_policies(), "fast", {}}), Error);
}

Json small_sweep() {
  return Json::parse(R"({"sweep": {"rows": [
    {"keys": {"tp": 1, "pp": 2}, "step_s": 3, "memory_peak_bytes": 100},
    {"keys": {"tp": 2, "pp": 2}, "step_s": 2, "memory_peak_bytes": 200},
    {"keys": {"tp": 8, "pp": 1}, "step_s": 4, "memory_peak_bytes": 200}],
    "infeasible": [{"keys": {"tp": 1, "pp": 1}, "reason": "too large"}]}})");
}

// tp changes the best step from 2 to 4 s, pp from 2 to 4 s too: tp comes later in the rows' order of names, pp first.
// Of the six places three are feasible. The front: 100 bytes in 3 s, 200 bytes in 2 s.
TEST(Sweep, HasACellForEachChoiceAndAFrontThatNothingBeats) {
  const std::string heat = draw_sweep({"a sweep", small_sweep(), "", {}});
  expect_well_formed(heat);
  EXPECT_EQ(count(heat, ">-</text>"), 3U);
  EXPECT_EQ(count(heat, "fill=\"#2f5f92\""), 1U);  // the fastest, darkest
  const std::string front = draw_front({"a sweep", small_sweep(), "", {}});
  expect_well_formed(front);
  EXPECT_EQ(count(front, "r=\"4.5\""), 2U);
  EXPECT_EQ(count(front, "r=\"3.5\""), 1U);
  EXPECT_THROW(draw_sweep({"a plan", two_policies(), "", {}}), Error);
}

// Sizes are logarithms: 1 KiB, 32 KiB and 1 MiB lie at the left, in the middle and at the right of 90..776; the largest
// bandwidth, 1e9 bytes a second, lies at 1 / 1.05 of the height of 180.
TEST(Collectives, PointsLieWhereSizeAndBandwidthSay) {
  const Json bench = Json::parse(R"({"link_bytes_per_s": 5e8, "rows": [
    {"collective": "all_reduce", "size_bytes": 1024, "algorithm": "ring", "bus_bandwidth": 1e8},
    {"collective": "all_reduce", "size_bytes": 32768, "algorithm": "ring", "bus_bandwidth": 5e8},
    {"collective": "all_reduce", "size_bytes": 1048576, "algorithm": "ring", "bus_bandwidth": 1e9},
    {"collective": "all_reduce", "size_bytes": 1048576, "algorithm": "native", "bus_bandwidth": 8e8},
    {"collective": "barrier", "size_bytes": 0, "algorithm": "ring", "bus_bandwidth": null}]})");
  const std::string svg = draw_collectives({"a bench", bench, "", {}});
  expect_well_formed(svg);
  EXPECT_EQ(count(svg, "cx=\"90.00\""), 1U);
  EXPECT_EQ(count(svg, "cx=\"433.00\""), 1U);
  EXPECT_EQ(count(svg, "cx=\"776.00\""), 2U);
  EXPECT_EQ(count(svg, "the library's own"), 1U);
  EXPECT_EQ(count(svg, ">barrier<"), 0U);
}

TEST(FigureViews, DrawTimelinesWhateverTheirNamesHold) {
  PageTimeline page = two_ranks();
  page.timeline.ranks[0].name = "</svg><script>";
  page.timeline.names[0] = "\xff<&\">";
  for (const FigureView& view : figure_views()) {
    if (!view.of_timelines) continue;
    const std::string svg = view.draw({"<&\"> \x01", {}, "", {page, page}});
    expect_well_formed(svg);
    EXPECT_EQ(count(svg, "<script"), 0U) << view.name;
  }
}

// The second of three steps is drawn in the middle, at 70 + 706 / 2 = 423.
TEST(FigureViews, DrawLossesOverSteps) {
  const Json summary = {{"policies", {{"int8", {{"losses", {4, 2, 3}}, {"compression_errors", {0.5, 0.25, 0.5}}}}}},
                        {"earlier_losses", {{"file", "plain.json"}, {"losses", {3, 3}}}}};
  const std::string svg = draw_losses({"a run", summary, "", {}});
  expect_well_formed(svg);
  EXPECT_EQ(count(svg, "stroke-linejoin"), 3U);
  EXPECT_EQ(count(svg, ">plain.json<"), 1U);
  EXPECT_EQ(count(svg, ">int8<"), 1U);
  EXPECT_EQ(count(svg, "L423.00 "), 3U);
  EXPECT_THROW(draw_losses({"a plan", {{"policies", {{"a", {{"step_s", 1}}}}}}, "", {}}), Error);
}

// What is no number is absent; nothing is drawn of it, and nothing breaks.
TEST(FigureViews, StandSummariesThatAnyoneWrote) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Json> summaries = {
      nullptr,
      Json::array(),
      3,
      {{"policies", {{"a", {{"losses", {1e300}}}}, {"b", {{"losses", {1}}, {"compression_errors", "x"}}}}},
       {"earlier_losses", 3}},
      {{"policies", 3}, {"sweep", "x"}, {"rows", {1, "x", nullptr}}},
      {{"best", 7},
       {"bound_s", "x"},
       {"policies", {{"a", {{"step_s", nan}, {"losses", {nan, 1}}}}, {"b", nullptr}, {"c", {{"step_s", -1}}}}}},
      {{"policies",
        {{"a", {{"step_s", 1e300}, {"compute_s", 1e300}, {"memory", {{{"bytes", 1e300}, {"terms", 5}}, 4}}}}}},
       {"sweep", {{"rows", {{{"keys", {{"tp", nullptr}}}, {"step_s", 1e-300}}, {{"keys", 4}, {"step_s", nan}}, 5}}}},
       {"rows", {{{"collective", 1}, {"size_bytes", 1e300}, {"bus_bandwidth", 1e300}}}}}};
  for (const Json& summary : summaries) {
    for (const FigureView& view : figure_views()) {
      if (view.of_timelines) continue;
      try {
        expect_well_formed(view.draw({"a title", summary, "a", {}}));
      } catch (const Error&) {
        continue;  // it says that there is nothing to draw
      }
    }
  }
}

// The font's own table hmtx: 0.64 of the size for a digit, 0.28 for an i.
TEST(FigureText, IsAsWideAsItsLetters) {
  EXPECT_NEAR(text_width("00", 10), 12.8, 1e-9);
  EXPECT_NEAR(text_width("i", 100), 28, 1e-9);
  EXPECT_NEAR(text_width("\u00d7", 100), 64, 1e-9);
  EXPECT_EQ(fitted_text("0000000000", 40, 10), "0000...");  // 4 * 6.4 + 3 * 3.2 = 35.2, with one more digit 41.6
  EXPECT_EQ(fitted_text("0000000000", 20, 10), "");
}

}  // namespace
}  // namespace weft
