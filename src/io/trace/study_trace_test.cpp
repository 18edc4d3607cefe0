#include "io/trace/study_trace.hpp"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "timeline/trace/test_device_trace.hpp"

namespace weft {
namespace {

using test::TestDeviceTrace;

nlohmann::json written(const TraceStudy& study) {
  std::ostringstream out;
  write_study_trace(out, study);
  return nlohmann::json::parse(out.str());
}

// Two ranks, clocks 5 us apart; overlapping activities on one stream; a name that JSON must escape.
TEST(StudyTrace, SlicesNestAndExposedStretchesHaveATrackOfTheirOwn) {
  TestDeviceTrace a(3), b(5);
  a.compute(7, 10'000, 20'000, "gemm \"x\"");
  const auto ca = a.communicate(20, 15'000, 40'500);
  a.communicate(20, 16'000, 30'000);  // beside it, on the same stream
  a.compute(7, 41'000, 50'000);
  const auto cb = b.communicate(20, 30'000, 45'500);
  a.collective(ca, "allreduce", "dp", 1000);
  b.collective(cb, "allreduce", "dp", 1000);
  const DeviceTrace one = a.trace(), two = b.trace();
  const nlohmann::json trace = written(study_ranks({{&one, {0, 1, 2, 3}}, {&two, {0}}}));

  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> tracks;
  std::map<std::pair<int, int>, std::string> names;
  double exposed = 0, late = 0;
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    const std::pair<int, int> track = {event.at("pid"), event.value("tid", 0)};
    if (event.at("ph") == "M" && event.at("name") == "thread_name") names[track] = event.at("args").at("name");
    if (event.at("ph") != "X") continue;
    const double begin = event.at("ts"), duration = event.at("dur");
    EXPECT_GE(begin, 0);
    tracks[track].emplace_back(begin, begin + duration);
    if (event.at("cat") == "exposed") {
      (track.first == 0 ? exposed : late) += duration;
      EXPECT_TRUE(event.at("args").contains("communication"));
    }
    if (event.at("name") == "late_peer") {
      EXPECT_EQ(event.at("args").at("late peer"), "rank 5");
    }
  }
  for (auto& [track, slices] : tracks) {
    ASSERT_TRUE(names.contains(track));
    std::sort(slices.begin(), slices.end());
    for (std::size_t i = 1; i < slices.size(); ++i) EXPECT_GE(slices[i].first, slices[i - 1].second - 1e-9);
  }
  EXPECT_NEAR(exposed, 20.5, 1e-9);  // 20 .. 40.5
  EXPECT_NEAR(late, 15.5, 1e-9);
  EXPECT_EQ((names[{0, 1}]), "exposed communication");
  EXPECT_EQ((names[{0, 4}]), "stream 20");
  EXPECT_EQ((names[{0, 5}]), "stream 20 (lane 2)");
  // The end of rank 5's collective is that of rank 3's: 40.5, of which 10 lie before the first activity.
  EXPECT_NEAR((tracks[{1, 3}].front().second), 30.5, 1e-9);
  EXPECT_EQ(trace.at("otherData").at("moved_us"), "10.000");
}

TEST(StudyTrace, OfNothingIsStillATrace) {
  const DeviceTrace empty;
  EXPECT_TRUE(written(study_ranks({{&empty, {}}})).at("traceEvents").is_array());
}

}  // namespace
}  // namespace weft
