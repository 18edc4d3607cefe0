// The activities of a stream by launch, to find what a call of the host could refer to.
#include <algorithm>
#include <utility>

#include "timeline/trace/device_waits.hpp"

namespace weft {

LaunchedOnStreams::LaunchedOnStreams(const DeviceTrace& trace, const DeviceOrder& order)
    : order_(&order), launches_(order.streams.size()) {
  for (const std::int32_t i : order.activities) {
    const std::size_t index = i;
    const Nanos at = launched_at(trace, trace.device[index]);
    if (at != kNoTime) launches_[order.stream[index]].push_back({at, i});
  }
  const auto by_time = [](const Launch& a, const Launch& b) { return a.at < b.at; };
  for (std::vector<Launch>& launches : launches_) {
    if (!std::is_sorted(launches.begin(), launches.end(), by_time)) {
      std::stable_sort(launches.begin(), launches.end(), by_time);
    }
  }
}

std::int32_t LaunchedOnStreams::last_before(std::int32_t stream, Nanos t) const {
  const std::vector<Launch>& launches = launches_[stream];
  const auto found = std::lower_bound(launches.begin(), launches.end(), t,
                                      [](const Launch& launch, Nanos time) { return launch.at < time; });
  return found == launches.begin() ? kAbsent : (found - 1)->activity;
}

std::int32_t LaunchedOnStreams::first_from(std::int32_t stream, Nanos t) const {
  const std::vector<Launch>& launches = launches_[stream];
  const auto found = std::lower_bound(launches.begin(), launches.end(), t,
                                      [](const Launch& launch, Nanos time) { return launch.at < time; });
  return found == launches.end() ? kAbsent : found->activity;
}

std::int32_t LaunchedOnStreams::find(std::int32_t device, std::int32_t stream) const {
  const auto found = std::lower_bound(order_->streams.begin(), order_->streams.end(), std::pair{device, stream},
                                      [](const DeviceStream& a, const std::pair<std::int32_t, std::int32_t>& key) {
                                        return std::pair{a.device, a.stream} < key;
                                      });
  if (found == order_->streams.end() || found->device != device || found->stream != stream) return kAbsent;
  return static_cast<std::int32_t>(found - order_->streams.begin());
}

}  // namespace weft
