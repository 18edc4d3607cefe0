// Against the transitive closure over all pairs.
#include "timeline/trace/device_precedence.hpp"

#include <gtest/gtest.h>

#include <random>

#include "timeline/trace/test_device_trace.hpp"

namespace weft {
namespace {

using test::TestDeviceTrace;

using Relation = std::vector<std::vector<bool>>;

Relation closure(const DeviceTrace& trace, const DeviceOrder& order) {
  const std::size_t n = trace.device.size();
  Relation before(n, std::vector<bool>(n, false));
  for (const DeviceStream& stream : order.streams) {
    for (std::size_t i = 1; i < stream.activities.size(); ++i) {
      before[stream.activities[i - 1]][stream.activities[i]] = true;
    }
  }
  for (const DeviceDependency& wait : order.waits) {
    before[wait.before][wait.after] = true;
  }
  for (const HostWait& wait : order.host_waits) {
    for (std::size_t i = 0; i < n; ++i) {
      const std::int32_t launch = trace.device[i].launch;
      if (launch == kAbsent) continue;
      const HostActivity& call = trace.host[launch];
      if (call.thread == wait.thread && call.start >= wait.end) before[wait.activity][i] = true;
    }
  }
  for (std::size_t k = 0; k < n; ++k) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        if (before[i][k] && before[k][j]) before[i][j] = true;
      }
    }
  }
  return before;
}

// A device that does what it is given: starts follow launches, streams and waits; now and then the host waits.
DeviceTrace random_trace(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return static_cast<std::int64_t>(random() % n); };
  TestDeviceTrace t;
  struct Planned {
    std::int64_t launch, start, end;
    std::int32_t stream, thread;
    std::vector<std::size_t> waits;
  };
  std::vector<Planned> planned;
  std::vector<std::pair<std::int64_t, std::int64_t>> syncs[2];
  std::int64_t clock[2] = {0, 3}, stream_end[4] = {0, 0, 0, 0};
  for (std::size_t i = 0; i < 24; ++i) {
    const std::size_t thread = random() % 3 == 0 ? 1 : 0;
    const std::size_t stream = random() % 4;
    if (random() % 5 == 0) {
      const std::int64_t start = clock[thread];
      std::int64_t end = start + 2;
      for (const Planned& p : planned) {
        if (p.launch < start) end = std::max(end, p.end + 1);
      }
      syncs[thread].emplace_back(start, end);
      clock[thread] = end + 1;
    }
    Planned p{clock[thread], 0, 0, static_cast<std::int32_t>(stream), static_cast<std::int32_t>(thread), {}};
    clock[thread] += 1 + below(6);
    p.start = std::max(p.launch + 1, stream_end[stream]) + below(3);
    for (auto w = random() % 3; w > 0 && !planned.empty(); --w) {
      const std::size_t other = random() % planned.size();
      p.waits.push_back(other);
      p.start = std::max(p.start, planned[other].end);
    }
    p.end = stream_end[stream] = p.start + 1 + below(20);
    planned.push_back(p);
  }
  std::vector<std::size_t> by_start(planned.size());
  for (std::size_t i = 0; i < planned.size(); ++i) by_start[i] = i;
  std::stable_sort(by_start.begin(), by_start.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(planned[a].start, -planned[a].end) < std::pair(planned[b].start, -planned[b].end);
  });
  std::vector<std::int32_t> index(planned.size());
  for (const std::size_t i : by_start) index[i] = t.compute(planned[i].stream, planned[i].start, planned[i].end);
  struct Call {
    std::int64_t start, end;
    std::int32_t activity, thread;
  };
  std::vector<Call> calls;
  for (std::size_t i = 0; i < planned.size(); ++i) {
    calls.push_back({planned[i].launch, planned[i].launch + 1, index[i], planned[i].thread});
    for (const std::size_t other : planned[i].waits) t.depends(index[other], index[i]);
  }
  for (std::int32_t thread = 0; thread < 2; ++thread) {
    for (const auto& [start, end] : syncs[thread]) calls.push_back({start, end, kAbsent, thread});
  }
  std::stable_sort(calls.begin(), calls.end(), [](const Call& a, const Call& b) { return a.start < b.start; });
  for (const Call& call : calls) {
    const HostCall kind = call.activity == kAbsent ? HostCall::device_synchronize : HostCall::launch;
    t.call(kind, call.start, call.end, call.activity, call.thread);
  }
  return t.trace();
}

TEST(DevicePrecedence, IsTheTransitiveClosure) {
  std::int64_t host_waits = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    const DeviceTrace trace = random_trace(seed);
    const DeviceOrder order = order_device(trace);
    host_waits += static_cast<std::int64_t>(order.host_waits.size());
    const DevicePrecedence precedence(trace, order);
    const Relation before = closure(trace, order);
    for (std::size_t i = 0; i < trace.device.size(); ++i) {
      for (std::size_t j = 0; j < trace.device.size(); ++j) {
        if (i == j) continue;
        ASSERT_EQ(precedence.precedes(static_cast<std::int32_t>(i), static_cast<std::int32_t>(j)), before[i][j])
            << "seed " << seed << ": " << i << " before " << j;
        const std::int32_t stream = order.stream[j];
        ASSERT_EQ(precedence.first_after(static_cast<std::int32_t>(i), stream) <= order.place[j], before[i][j]);
      }
    }
  }
  EXPECT_GT(host_waits, 100);
}

}  // namespace
}  // namespace weft
