#include "timeline/trace/device_order.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "timeline/trace/device_waits.hpp"

namespace weft {
namespace {

void fill_streams(const DeviceTrace& trace, DeviceOrder& order) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> numbers;
  for (const std::int32_t i : order.activities) {
    const DeviceActivity& activity = trace.device[i];
    numbers.try_emplace({activity.device, activity.stream}, 0);
  }
  for (auto& [key, number] : numbers) {
    number = static_cast<std::int32_t>(order.streams.size());
    order.streams.push_back({key.first, key.second, {}});
  }
  order.stream.assign(trace.device.size(), kAbsent);
  order.place.assign(trace.device.size(), 0);
  for (const std::int32_t i : order.activities) {
    const std::size_t index = i;
    const std::int32_t number = numbers.at({trace.device[index].device, trace.device[index].stream});
    DeviceStream& stream = order.streams[number];
    order.stream[index] = number;
    order.place[index] = static_cast<std::int32_t>(stream.activities.size());
    stream.activities.push_back(i);
  }
}

}  // namespace

std::string_view name_of(WaitSource source) {
  return source == WaitSource::recorded ? "recorded" : source == WaitSource::inferred ? "inferred" : "none";
}

std::int32_t DeviceOrder::previous_on_stream(std::int32_t activity) const {
  const std::size_t index = activity;
  if (place[index] == 0) return kAbsent;
  return streams[stream[index]].activities[place[index] - 1];
}

std::span<const DeviceDependency> DeviceOrder::waits_of(std::int32_t activity) const {
  const auto [first, last] =
      std::equal_range(waits.begin(), waits.end(), DeviceDependency{0, activity},
                       [](const DeviceDependency& a, const DeviceDependency& b) { return a.after < b.after; });
  return {first, last};
}

std::span<const HostWait> DeviceOrder::host_waits_of(std::int32_t thread) const {
  HostWait key;
  key.thread = thread;
  const auto [first, last] = std::equal_range(host_waits.begin(), host_waits.end(), key,
                                              [](const HostWait& a, const HostWait& b) { return a.thread < b.thread; });
  return {first, last};
}

DeviceOrder order_device(const DeviceTrace& trace, std::vector<std::int32_t> activities) {
  DeviceOrder order;
  order.activities = std::move(activities);
  fill_streams(trace, order);
  find_stream_waits(trace, order);
  find_host_waits(trace, order);
  return order;
}

DeviceOrder order_device(const DeviceTrace& trace) {
  std::vector<std::int32_t> all(trace.device.size());
  std::iota(all.begin(), all.end(), 0);
  return order_device(trace, std::move(all));
}

}  // namespace weft
