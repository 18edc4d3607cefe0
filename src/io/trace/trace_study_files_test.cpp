// The study on traces that PyTorch wrote: expectations follow by hand from the files, or are those of HTA's own tests
// (tests/test_critical_path_analysis.py there), which name activities by correlation.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "io/trace/device_trace_reader.hpp"
#include "timeline/trace/trace_study.hpp"

namespace weft {
namespace {

DeviceTrace read(const std::string& name) {
  return read_device_traces(fmt::format("{}/tests/data/traces/{}", WEFT_SOURCE_DIR, name)).front();
}

std::int32_t activity(const DeviceTrace& trace, std::int64_t correlation) {
  for (std::size_t i = 0; i < trace.device.size(); ++i) {
    if (trace.device[i].correlation == correlation) return static_cast<std::int32_t>(i);
  }
  ADD_FAILURE() << "no activity " << correlation;
  return 0;
}

bool waits(const DeviceOrder& order, std::int32_t before, std::int32_t after) {
  for (const DeviceDependency& wait : order.waits_of(after)) {
    if (wait.before == before) return true;
  }
  return false;
}

// HTA: the event recorded on stream 20 marks kernel 27, not the one launched last (57 on stream 28), and the fill 1411
// on stream 24 waits for it.
TEST(TraceStudyFiles, AnEventMarksTheLastKernelOfItsOwnStream) {
  const DeviceTrace trace = read("hta_cuda_event_sync_multi_stream.json.gz");
  const DeviceOrder order = order_device(trace);
  EXPECT_EQ(order.source, WaitSource::recorded);
  EXPECT_TRUE(waits(order, activity(trace, 27), activity(trace, 1411)));
  EXPECT_FALSE(waits(order, activity(trace, 57), activity(trace, 1411)));
}

// By hand, microseconds since the profiler began: kernel 1413 ran from 62329 to 62452, behind the fill 1411, which
// ended at 62314, when 1413's launch began. The fill ran for 1; its launch began at 62299, all else had ended long
// before. Before that the host worked; the first activity of the device began at 42946.
TEST(TraceStudyFiles, TheCriticalPathOfThreeStreamsIsMostlyHost) {
  const DeviceTrace trace = read("hta_cuda_event_sync_multi_stream.json.gz");
  const DeviceOrder order = order_device(trace);
  const auto times = path_time_by_kind(device_critical_path({{&trace, &order, nullptr, Nanos{0}}}));
  const auto micros = [&](PathKind kind) { return times[kind].value / 1000; };
  EXPECT_EQ(micros(PathKind::computation), 123);
  EXPECT_EQ(micros(PathKind::device_gap), 15);
  EXPECT_EQ(micros(PathKind::memory), 1);
  EXPECT_EQ(micros(PathKind::launch_delay), 14);
  EXPECT_EQ(micros(PathKind::host), 62299 - 42946);
  EXPECT_EQ(micros(PathKind::unknown), 0);
}

// HTA: a launch delay of 27 us before kernel 5597, then a gap of 7 us between it and 5604.
TEST(TraceStudyFiles, LaunchDelaysAndGapsAreThoseOfHta) {
  const DeviceTrace trace = read("hta_critical_path_simple_add.json.gz");
  const DeviceOrder order = order_device(trace);
  const std::int32_t first = activity(trace, 5597), second = activity(trace, 5604);
  const DeviceActivity &a = trace.device[first], &b = trace.device[second];
  const std::vector<PathSegment> path = device_critical_path({{&trace, &order, nullptr, Nanos{0}}}, a.issued, b.end);
  ASSERT_EQ(path.size(), 4u);
  EXPECT_EQ(path[0], (PathSegment{PathKind::launch_delay, 0, first, a.issued, a.issued + Nanos{27'000}}));
  EXPECT_EQ(path[1], (PathSegment{PathKind::computation, 0, first, a.start, a.end}));
  EXPECT_EQ(path[2], (PathSegment{PathKind::device_gap, 0, second, a.end, a.end + Nanos{7'000}}));
  EXPECT_EQ(path[3], (PathSegment{PathKind::computation, 0, second, b.start, b.end}));
}

// HTA: the next kernel of stream 7, 5629, waits for 5606 on stream 20.
TEST(TraceStudyFiles, WaitsWithoutTheRecordsCorrelationAreFound) {
  const DeviceTrace trace = read("hta_critical_path_simple_add.json.gz");
  EXPECT_TRUE(waits(order_device(trace), activity(trace, 5606), activity(trace, 5629)));
}

TEST(TraceStudyFiles, ReasonsOfARealTraceAddUp) {
  for (const char* file : {"hta_nccl_data_a100_rank0of2.json.gz", "hta_trace_diff_control_a100_rank3of8.json.gz",
                           "hta_sampled_rank0of128.json.gz"}) {
    const DeviceTrace trace = read(file);
    std::vector<std::int32_t> all(trace.device.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int32_t>(i);
    const TraceStudy study = study_ranks({{&trace, all}});
    const RankStudy& rank = study.ranks.front();
    const Nanos exposed = rank.exposed.communication.without(rank.exposed.computation).total();
    EXPECT_GT(exposed.value, 0);
    EXPECT_EQ(rank.exposed.total(), exposed) << file;
    Nanos rows{0}, reasons{0}, path{0};
    for (const auto& [key, row] : rank.table) {
      rows += row.exposed;
      for (const Nanos time : row.reasons) reasons += time;
      EXPECT_LE(row.possible, row.exposed);
    }
    EXPECT_EQ(rows, exposed) << file;
    EXPECT_EQ(reasons, exposed) << file;
    EXPECT_LE(rank.bound.gain_same_order, rank.bound.gain_any_order) << file;
    EXPECT_LE(rank.bound.gain_any_order, exposed) << file;
    for (const PathSegment& segment : study.path) path += segment.end - segment.begin;
    EXPECT_EQ(path, rank.span) << file;
  }
}

}  // namespace
}  // namespace weft
