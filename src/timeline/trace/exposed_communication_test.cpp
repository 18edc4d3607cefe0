#include "timeline/trace/exposed_communication.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "timeline/trace/test_device_trace.hpp"

namespace weft {
namespace {

using test::TestDeviceTrace;

ExposedCommunication exposed(const DeviceTrace& trace, const std::vector<PeerStart>& peers = {}) {
  const DeviceOrder order = order_device(trace);
  return find_exposed(trace, order, DevicePrecedence(trace, order), peers);
}

// "reason begin end", one line each.
std::string text(const ExposedCommunication& found) {
  std::string result;
  for (const DeviceExposure& s : found.stretches) {
    result += fmt::format("{} {} {}\n", name_of(s.reason), s.begin.value, s.end.value);
  }
  return result;
}

TEST(ExposedCommunication, WhatComputationCoversIsHidden) {
  TestDeviceTrace t;
  t.compute(7, 0, 100);
  t.communicate(20, 50, 300);
  t.compute(7, 150, 200);
  const ExposedCommunication found = exposed(t.trace());
  EXPECT_EQ(found.total().value, 150);  // [100, 150) and [200, 300)
  EXPECT_EQ(found.communication.total().value, 250);
}

TEST(ExposedCommunication, OfSeveralTheOneThatEndsLastIsCharged) {
  TestDeviceTrace t;
  const auto a = t.communicate(20, 0, 100), b = t.communicate(21, 40, 150);
  t.communicate(22, 50, 90);
  const ExposedCommunication found = exposed(t.trace());
  ASSERT_EQ(found.stretches.size(), 2u);
  EXPECT_EQ(found.stretches[0].activity, a);
  EXPECT_EQ(found.stretches[0].end.value, 40);
  EXPECT_EQ(found.stretches[1].activity, b);
  EXPECT_EQ(found.total().value, 150);
}

TEST(ExposedCommunication, AnEventWaitIsADependency) {
  TestDeviceTrace t;
  const auto a = t.compute(7, 100, 200), c = t.communicate(20, 200, 500), b = t.compute(7, 500, 600);
  t.launch(a, 10, 11);
  t.launch(c, 20, 21);
  const auto record = t.call(HostCall::event_record, 30, 31), wait = t.call(HostCall::stream_wait_event, 40, 41);
  t.launch(b, 50, 51);
  t.stream_waits(wait, 7, record, 20);
  EXPECT_EQ(text(exposed(t.trace())), "dependency 200 500\n");
}

TEST(ExposedCommunication, ARecordedTraceWithoutSuchAWaitHasNoDependency) {
  TestDeviceTrace t;
  const auto a = t.compute(7, 100, 200), c = t.communicate(20, 200, 500), b = t.compute(8, 510, 600);
  t.launch(a, 10, 11);
  const auto record = t.call(HostCall::event_record, 15, 16), wait = t.call(HostCall::stream_wait_event, 17, 18);
  t.launch(c, 20, 21);
  t.launch(b, 50, 51);
  t.stream_waits(wait, 20, record, 7);
  EXPECT_EQ(text(exposed(t.trace())), "launch_delay 200 500\n");
}

// The next computation is launched at 350: until then the host is late, from then on it waits for the communication.
TEST(ExposedCommunication, BeforeTheLaunchTheHostIsLate) {
  TestDeviceTrace t;
  const auto a = t.compute(7, 100, 200), c = t.communicate(20, 200, 500), b = t.compute(7, 500, 600);
  t.launch(a, 10, 11);
  t.launch(c, 20, 21);
  t.launch(b, 350, 360);
  EXPECT_EQ(text(exposed(t.trace())), "late_launch 200 350\ndependency 350 500\n");
}

TEST(ExposedCommunication, AHostThatWaitsForTheDeviceIsNotLate) {
  TestDeviceTrace t;
  const auto a = t.compute(7, 100, 200), c = t.communicate(20, 200, 500), b = t.compute(7, 560, 600);
  t.communicate(20, 500, 700);
  t.launch(a, 10, 11);
  t.launch(c, 20, 21);
  t.call(HostCall::stream_synchronize, 230, 510);
  t.launch(b, 550, 552);
  const ExposedCommunication found = exposed(t.trace());
  // From 550 on it is launched; the second communication runs on beside it, so nothing known holds it back.
  EXPECT_EQ(text(found),
            "late_launch 200 230\nhost_wait 230 500\nhost_wait 500 510\nlate_launch 510 550\nlaunch_delay 550 560\n"
            "nothing_left 600 700\n");
  EXPECT_EQ(found.stretches[1].cause, c);
}

TEST(ExposedCommunication, OnOneStreamComputationComesAfterIt) {
  TestDeviceTrace t;
  const auto a = t.compute(7, 100, 200), c = t.communicate(7, 200, 500), b = t.compute(7, 500, 600);
  t.launch(a, 10, 11);
  t.launch(c, 20, 21);
  t.launch(b, 30, 31);
  EXPECT_EQ(text(exposed(t.trace())), "one_stream 200 500\n");
}

TEST(ExposedCommunication, ComputationBehindACopyIsAMatterOfStreamOrder) {
  TestDeviceTrace t;
  const auto a = t.compute(7, 100, 200), c = t.communicate(20, 200, 500), m = t.copy(7, 200, 320);
  const auto b = t.compute(7, 330, 600);
  t.launch(a, 10, 11);
  t.launch(c, 20, 21);
  t.launch(m, 30, 31);
  t.launch(b, 40, 41);
  const ExposedCommunication found = exposed(t.trace());
  EXPECT_EQ(text(found), "stream_order 200 320\nlaunch_delay 320 330\n");
  EXPECT_EQ(found.stretches[0].cause, m);
}

// `second` is launched at 40 and its data is there at 200, when a ends; it must let `first` pass until 300. b computes
// for 60 of these 100, and so much of its wait for data could have been hidden.
TEST(ExposedCommunication, ACommunicationThatWaitsItsTurnIsAMatterOfStreamOrder) {
  TestDeviceTrace t;
  const auto a = t.compute(7, 100, 200), first = t.communicate(20, 150, 300), b = t.compute(7, 220, 280);
  const auto second = t.communicate(20, 300, 400), d = t.compute(7, 400, 500);
  t.depends(a, second);
  t.depends(second, d);
  t.launch(first, 5, 6);
  t.launch(a, 10, 11);
  t.launch(second, 40, 41);
  t.launch(b, 50, 51);
  t.launch(d, 60, 61);
  const ExposedCommunication found = exposed(t.trace());
  // Before 220 and from 280 to 300 `first` is exposed: b and d are there, and nothing is known that held b.
  EXPECT_EQ(text(found), "launch_delay 200 220\ndependency 280 300\nstream_order 300 360\ndependency 360 400\n");
  EXPECT_EQ(found.stretches[2].cause, first);
}

TEST(ExposedCommunication, BeforeTheLastMemberBeganAPeerIsLate) {
  TestDeviceTrace t;
  const auto a = t.compute(7, 100, 200), c = t.communicate(20, 200, 500), b = t.compute(7, 500, 600);
  t.launch(a, 10, 11);
  t.launch(c, 20, 21);
  t.launch(b, 30, 31);
  const ExposedCommunication found = exposed(t.trace(), {{c, 3, 0, Nanos{420}}});
  EXPECT_EQ(text(found), "late_peer 200 420\ndependency 420 500\n");
  EXPECT_EQ(found.stretches[0].peer, 3);
}

// In our own traces an operation is issued when its queue reaches it, which is no launch by a host.
TEST(ExposedCommunication, OfOurOwnTracesNoHostIsLate) {
  TestDeviceTrace t;
  t.trace().source = TraceSource::weft;
  const auto a = t.compute(0, 100, 200), c = t.communicate(1, 200, 500), b = t.compute(0, 500, 600);
  t.depends(a, c);
  t.depends(c, b);
  t.trace().device[b].issued = Nanos{500};
  EXPECT_EQ(text(exposed(t.trace())), "dependency 200 500\n");
}

// Instant by instant, whatever the trace: exposed is communication without computation, and every instant has one
// reason.
TEST(ExposedCommunication, ReasonsAddUpToTheExposedTime) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    TestDeviceTrace t;
    std::int64_t stream_end[4] = {0, 0, 0, 0}, host = 0;
    struct Planned {
      std::int64_t start, end, launch;
      KernelKind kind;
      std::int32_t stream;
    };
    std::vector<Planned> planned;
    for (int i = 0; i < 20; ++i) {
      const std::size_t stream = random() % 4;
      host += static_cast<std::int64_t>(random() % 9);
      const std::int64_t start = std::max(stream_end[stream], host + 1) + static_cast<std::int64_t>(random() % 10);
      stream_end[stream] = start + static_cast<std::int64_t>(random() % 25);
      const auto kind = static_cast<KernelKind>(random() % 3);
      planned.push_back({start, stream_end[stream], host, kind, static_cast<std::int32_t>(stream)});
    }
    std::stable_sort(planned.begin(), planned.end(), [](const Planned& a, const Planned& b) {
      return std::pair(a.start, -a.end) < std::pair(b.start, -b.end);
    });
    std::vector<std::pair<std::int64_t, std::int32_t>> launches;
    std::vector<PeerStart> peers;
    for (const Planned& p : planned) {
      const std::int32_t i = t.activity(p.kind, p.stream, p.start, p.end, "x");
      launches.emplace_back(p.launch, i);
      if (p.kind == KernelKind::communication && p.end > p.start + 2 && random() % 2 == 0) {
        peers.push_back({i, 1, 0, Nanos{p.start + 2}});
      }
    }
    std::stable_sort(launches.begin(), launches.end(), [](auto a, auto b) { return a.first < b.first; });
    for (const auto& [at, activity] : launches) {
      if (random() % 6 == 0) t.call(HostCall::device_synchronize, at, at + 20);
      if (random() % 4 == 0) t.call(HostCall::event_record, at, at);
      if (random() % 4 == 0) t.call(HostCall::stream_wait_event, at, at);
      t.launch(activity, at, at + 1);
    }
    const ExposedCommunication found = exposed(t.trace(), peers);
    const std::int64_t last = *std::max_element(stream_end, stream_end + 4);
    std::size_t stretch = 0;
    for (std::int64_t now = 0; now <= last; ++now) {
      bool computes = false;
      std::int64_t ends = -1;
      for (const Planned& p : planned) {
        if (p.start > now || p.end <= now) continue;
        if (p.kind == KernelKind::computation) computes = true;
        if (p.kind == KernelKind::communication) ends = std::max(ends, p.end);
      }
      while (stretch < found.stretches.size() && found.stretches[stretch].end.value <= now) ++stretch;
      const bool inside = stretch < found.stretches.size() && found.stretches[stretch].begin.value <= now;
      ASSERT_EQ(inside, ends >= 0 && !computes) << "seed " << seed << " at " << now;
      if (!inside) continue;
      const DeviceActivity& charged = t.trace().device[found.stretches[stretch].activity];
      ASSERT_EQ(charged.kind, KernelKind::communication);
      ASSERT_EQ(charged.end.value, ends);
    }
  }
}

}  // namespace
}  // namespace weft
