#include "timeline/trace/launch_statistics.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "timeline/trace/hta_times.hpp"

namespace weft {
namespace {

constexpr std::array<std::string_view, 10> kLaunchCalls = {
    "cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx",         "cudaMemcpyAsync",
    "cudaMemsetAsync",  "hipLaunchKernel",     "hipMemcpyAsync", "hipExtModuleLaunchKernel", "hipMemsetAsync"};

// The call that launched it; null: none, or one that launches many.
const HostActivity* call_of(const DeviceTrace& trace, const DeviceActivity& activity) {
  if (activity.launch == kAbsent) return nullptr;
  const HostActivity& call = trace.host[activity.launch];
  const std::string& name = trace.names[call.name];
  return std::find(kLaunchCalls.begin(), kLaunchCalls.end(), name) == kLaunchCalls.end() ? nullptr : &call;
}

Distribution distribution(std::vector<Nanos>& values) {
  if (values.empty()) return {};
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return {*middle, *std::max_element(values.begin(), values.end())};
}

struct QueueChange {
  Nanos at;
  int by = 0;
};

void summarize(std::vector<QueueChange>& changes, QueueLength& queue) {
  // A launch comes before the start that it leads to.
  std::stable_sort(changes.begin(), changes.end(),
                   [](const QueueChange& a, const QueueChange& b) { return a.at != b.at ? a.at < b.at : a.by > b.by; });
  std::int64_t length = 0, sum = 0;
  double area = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    length += changes[i].by;
    sum += length;
    queue.longest = std::max(queue.longest, length);
    if (i + 1 == changes.size()) continue;
    const Nanos lasts = changes[i + 1].at - changes[i].at;
    area += static_cast<double>(length) * static_cast<double>(lasts.value);
    if (length >= kFullQueue) queue.full += lasts;
  }
  const Nanos whole = changes.back().at - changes.front().at;
  queue.mean = whole.value > 0 ? area / static_cast<double>(whole.value) : 0;
  queue.mean_of_changes = static_cast<double>(sum) / static_cast<double>(changes.size());
}

}  // namespace

LaunchStatistics launch_statistics(const DeviceTrace& trace, const std::vector<std::int32_t>& activities) {
  LaunchStatistics result;
  std::vector<Nanos> calls, kernels, delays;
  for (const std::int32_t i : activities) {
    const DeviceActivity& activity = trace.device[i];
    const HostActivity* call = call_of(trace, activity);
    if (call == nullptr) continue;
    const Nanos start = hta_start(trace, activity.start), call_end = hta_end(trace, call->start, call->end);
    calls.push_back(call_end - hta_start(trace, call->start));
    kernels.push_back(hta_end(trace, activity.start, activity.end) - start);
    delays.push_back(std::max(start - call_end, Nanos{0}));
    if (calls.back() > kLongCall) {
      ++result.long_calls;
    } else if (kernels.back() < calls.back()) {
      ++result.short_kernels;
    }
    if (delays.back() > kLongDelay) ++result.long_delays;
  }
  result.launches = std::ssize(calls);
  result.call = distribution(calls);
  result.kernel = distribution(kernels);
  result.delay = distribution(delays);
  return result;
}

std::vector<QueueLength> queue_lengths(const DeviceTrace& trace, const std::vector<std::int32_t>& activities) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<QueueChange>> streams;
  for (const std::int32_t i : activities) {
    const DeviceActivity& activity = trace.device[i];
    const HostActivity* call = call_of(trace, activity);
    if (call == nullptr) continue;
    std::vector<QueueChange>& changes = streams[{activity.device, activity.stream}];
    changes.push_back({hta_start(trace, call->start), 1});
    changes.push_back({hta_start(trace, activity.start), -1});
  }
  std::vector<QueueLength> result;
  for (auto& [id, changes] : streams) {
    QueueLength queue;
    std::tie(queue.device, queue.stream) = id;
    summarize(changes, queue);
    result.push_back(queue);
  }
  return result;
}

}  // namespace weft
