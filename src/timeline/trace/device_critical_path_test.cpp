#include "timeline/trace/device_critical_path.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "timeline/trace/path_entries.hpp"
#include "timeline/trace/test_device_trace.hpp"
#include "timeline/trace/trace_study.hpp"

namespace weft {
namespace {

using test::TestDeviceTrace;

// "kind begin end", one line each; with the rank where there are several.
std::string text(const std::vector<PathSegment>& path, bool ranks = false) {
  std::string result;
  for (const PathSegment& s : path) {
    result += fmt::format("{} {} {}", name_of(s.kind), s.begin.value, s.end.value);
    result += ranks ? fmt::format(" on {}\n", s.rank) : "\n";
  }
  return result;
}

std::vector<PathSegment> path_of(const DeviceTrace& trace) {
  const DeviceOrder order = order_device(trace);
  return device_critical_path({{&trace, &order, nullptr, Nanos{0}}});
}

// a is launched before the window that the device defines; c waited for a, b for c; beside them a short kernel.
TEST(DeviceCriticalPath, FollowsWaitsAndStreamOrder) {
  TestDeviceTrace t;
  const auto a = t.compute(7, 100, 200), c = t.communicate(20, 203, 500);
  t.compute(8, 210, 220);
  const auto b = t.compute(7, 510, 600), m = t.copy(7, 600, 620);
  t.depends(a, c);
  t.depends(c, b);
  t.launch(a, 10, 11);
  t.launch(c, 20, 21);
  t.launch(b, 30, 31);
  t.launch(m, 40, 41);
  EXPECT_EQ(text(path_of(t.trace())),
            "computation 100 200\ndevice_gap 200 203\ncommunication 203 500\ndevice_gap 500 510\ncomputation 510 600\n"
            "memory 600 620\n");
}

// b is launched after a had ended: the host decides. It had waited for a until 210, and worked until 300.
TEST(DeviceCriticalPath, GoesThroughTheHostWhereTheLaunchIsLate) {
  TestDeviceTrace t;
  const auto a = t.compute(7, 100, 200), b = t.compute(7, 320, 400);
  t.launch(a, 10, 11);
  t.call(HostCall::stream_synchronize, 15, 210);
  t.launch(b, 300, 305);
  const std::vector<PathSegment> path = path_of(t.trace());
  EXPECT_EQ(text(path),
            "computation 100 200\nhost_wake 200 210\nhost 210 300\nlaunch_delay 300 320\ncomputation 320 400\n");
  EXPECT_EQ(path[1].index, 1);  // the call
  const auto times = path_time_by_kind(path);
  EXPECT_EQ(times[PathKind::computation].value, 180);
  EXPECT_EQ(times[PathKind::host].value, 90);
}

// Thread 1 launches b; it did nothing before 250, so from 240 on the path is its own. Thread 0 worked until 240 and had
// waited for a until 210.
TEST(DeviceCriticalPath, ThreadsHandOver) {
  TestDeviceTrace t;
  const auto a = t.compute(7, 100, 200), b = t.compute(7, 320, 400);
  t.launch(a, 10, 11);
  t.call(HostCall::stream_synchronize, 15, 210);
  t.call(HostCall::other, 210, 240);
  t.call(HostCall::other, 250, 299, kAbsent, 1);
  t.launch(b, 300, 305, 1);
  EXPECT_EQ(text(path_of(t.trace())),
            "computation 100 200\nhost_wake 200 210\nhost 210 240\nhost 240 300\nlaunch_delay 300 320\ncomputation 320 "
            "400\n");
}

// Rank 0 waits in its collective for rank 1, which computes until 300; rank 1's clock is 1000 ahead.
TEST(DeviceCriticalPath, CrossesToTheRankThatCameLast) {
  TestDeviceTrace a(0), b(1);
  a.compute(7, 100, 150);
  const auto ca = a.communicate(7, 150, 400);
  a.compute(7, 400, 450);
  b.compute(7, 1100, 1300);
  const auto cb = b.communicate(7, 1310, 1400);
  a.collective(ca, "allreduce", "dp", 5);
  b.collective(cb, "allreduce", "dp", 5);
  const DeviceTrace one = a.trace(), two = b.trace();
  const TraceStudy study = study_ranks({{&one, {0, 1, 2}}, {&two, {0, 1}}});
  EXPECT_EQ(
      text(study.path, true),
      "computation 100 300 on 1\ndevice_gap 300 310 on 1\ncommunication 310 400 on 0\ncomputation 400 450 on 0\n");
}

// From 210 to 300 on thread 0: 20 in an operator with a call inside, 10 between, 30 in another call, 30 between.
TEST(PathEntries, ShareTheHostOutAmongItsOutermostOperators) {
  TestDeviceTrace t;
  const auto a = t.compute(7, 100, 200), b = t.compute(7, 320, 400);
  t.launch(a, 10, 11);
  t.call(HostCall::stream_synchronize, 15, 210);
  const auto outer = t.call(HostCall::none, 210, 230), inner = t.call(HostCall::other, 215, 225);
  const auto other = t.call(HostCall::other, 240, 270);
  t.launch(b, 300, 305);
  for (const auto& [call, name] : {std::pair{outer, "outer"}, {inner, "inner"}, {other, "other"}}) {
    t.trace().host[call].name = t.name(name);
  }
  const DeviceTrace trace = t.trace();
  Nanos sum{0};
  std::map<std::string, std::int64_t> host;
  for (const PathEntry& entry : path_entries(study_ranks({{&trace, t.all()}}))) {
    sum += entry.time;
    if (entry.kind == PathKind::host) host[entry.name] = entry.time.value;
  }
  EXPECT_EQ(sum.value, 300);
  EXPECT_EQ(host, (std::map<std::string, std::int64_t>{{"outer", 20}, {"other", 30}, {"", 40}}));
}

TEST(DeviceCriticalPath, OfNothingIsEmpty) {
  TestDeviceTrace t;
  EXPECT_TRUE(path_of(t.trace()).empty());
}

// Whatever the trace says, even times that contradict each other: the path covers the whole time once.
TEST(DeviceCriticalPath, CoversTheWholeTimeOnce) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](unsigned n) { return static_cast<std::int64_t>(random() % n); };
    TestDeviceTrace t;
    std::vector<std::int64_t> starts, calls;
    for (int i = 0; i < 15; ++i) starts.push_back(50 + below(200));
    for (int i = 0; i < 25; ++i) calls.push_back(below(260));
    std::sort(starts.begin(), starts.end());
    std::sort(calls.begin(), calls.end());
    for (const std::int64_t start : starts) {
      t.activity(static_cast<KernelKind>(random() % 3), static_cast<std::int32_t>(random() % 3), start,
                 start + below(30), "x");
    }
    std::int32_t next = 0;
    for (const std::int64_t at : calls) {
      const auto thread = static_cast<std::int32_t>(random() % 2);
      if (random() % 2 == 0 && next < 15) {
        t.launch(next++, at, at + below(9), thread);
      } else {
        t.call(static_cast<HostCall>(random() % 8), at, at + below(40), kAbsent, thread);
      }
    }
    const std::vector<PathSegment> path = path_of(t.trace());
    Nanos last{0};
    for (const DeviceActivity& activity : t.trace().device) last = std::max(last, activity.end);
    if (last == t.trace().device.front().start) continue;
    ASSERT_FALSE(path.empty()) << seed;
    EXPECT_EQ(path.front().begin, t.trace().device.front().start);
    EXPECT_EQ(path.back().end, last);
    for (std::size_t i = 0; i < path.size(); ++i) {
      ASSERT_LT(path[i].begin, path[i].end) << seed;
      if (i > 0) {
        ASSERT_EQ(path[i - 1].end, path[i].begin) << seed;
      }
    }
  }
}

}  // namespace
}  // namespace weft
