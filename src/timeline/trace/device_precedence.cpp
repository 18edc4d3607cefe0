#include "timeline/trace/device_precedence.hpp"

#include <algorithm>

#include "timeline/trace/device_waits.hpp"

namespace weft {

std::int32_t DevicePrecedence::count_at(const std::vector<Change>& changes, std::int64_t at) {
  const auto found = std::upper_bound(changes.begin(), changes.end(), at,
                                      [](std::int64_t place, const Change& change) { return place < change.at; });
  return found == changes.begin() ? 0 : (found - 1)->count;
}

void DevicePrecedence::raise(Clock& clock, std::int32_t stream, std::int64_t at, std::int32_t count) {
  std::vector<Change>& changes = clock[stream];
  if (!changes.empty() && changes.back().count >= count) return;
  if (!changes.empty() && changes.back().at == at) {
    changes.back().count = count;
  } else {
    changes.push_back({at, count});
  }
}

void DevicePrecedence::merge(Clock& into, std::int64_t at, std::int32_t activity, std::int32_t own_stream) const {
  const std::int32_t stream = order_->stream[activity];
  const std::int32_t place = order_->place[activity];
  if (stream != own_stream) raise(into, stream, at, place + 1);
  for (const auto& [other, changes] : clocks_[stream]) {
    const std::int32_t count = count_at(changes, place);
    if (other != own_stream && count > 0) raise(into, other, at, count);
  }
}

DevicePrecedence::DevicePrecedence(const DeviceTrace& trace, const DeviceOrder& order)
    : order_(&order), clocks_(order.streams.size()) {
  // Activities by start, merged with the ends of host waits: a launch can only know what was done before.
  std::vector<const HostWait*> waits;
  for (const HostWait& wait : order.host_waits) waits.push_back(&wait);
  std::stable_sort(waits.begin(), waits.end(), [](const HostWait* a, const HostWait* b) { return a->end < b->end; });
  std::vector<Clock> threads(trace.threads.size());
  std::vector<Nanos> changed(trace.threads.size(), kNoTime);              // when the thread's clock last grew
  std::vector<std::map<std::int32_t, Nanos>> seen(order.streams.size());  // by thread: up to when its clock is merged
  std::size_t next_wait = 0;
  auto edge = order.waits.begin();
  for (const std::int32_t i : order.activities) {
    const std::size_t index = i;
    const DeviceActivity& activity = trace.device[index];
    for (; next_wait < waits.size() && waits[next_wait]->end <= activity.start; ++next_wait) {
      const HostWait& wait = *waits[next_wait];
      merge(threads[wait.thread], wait.end.value, wait.activity, kAbsent);
      changed[wait.thread] = wait.end;
    }
    const std::int32_t stream = order.stream[index];
    Clock& clock = clocks_[stream];
    for (; edge != order.waits.end() && edge->after == i; ++edge)
      merge(clock, order.place[index], edge->before, stream);
    if (activity.launch == kAbsent) continue;
    const std::int32_t thread = trace.host[activity.launch].thread;
    const Nanos launch = launched_at(trace, activity);
    if (changed[thread] == kNoTime) continue;
    Nanos& merged = seen[stream].try_emplace(thread, kNoTime).first->second;
    if (merged >= std::min(launch, changed[thread])) continue;
    merged = launch;
    for (const auto& [other, changes] : threads[thread]) {
      const std::int32_t count = count_at(changes, launch.value);
      if (other != stream && count > 0) raise(clock, other, order.place[index], count);
    }
  }
}

std::int32_t DevicePrecedence::count_before(std::int32_t activity, std::int32_t stream) const {
  const std::size_t index = activity;
  if (order_->stream[index] == stream) return order_->place[index];
  const Clock& clock = clocks_[order_->stream[index]];
  const auto found = clock.find(stream);
  return found == clock.end() ? 0 : count_at(found->second, order_->place[index]);
}

std::int32_t DevicePrecedence::first_after(std::int32_t activity, std::int32_t stream) const {
  const std::size_t index = activity;
  const std::int32_t own = order_->stream[index];
  if (own == stream) return order_->place[index] + 1;
  const auto length = static_cast<std::int32_t>(order_->streams[stream].activities.size());
  const Clock& clock = clocks_[stream];
  const auto found = clock.find(own);
  if (found == clock.end()) return length;
  const auto change = std::upper_bound(found->second.begin(), found->second.end(), order_->place[index],
                                       [](std::int32_t place, const Change& c) { return place < c.count; });
  return change == found->second.end() ? length : static_cast<std::int32_t>(change->at);
}

bool DevicePrecedence::precedes(std::int32_t before, std::int32_t after) const {
  return order_->place[before] < count_before(after, order_->stream[before]);
}

}  // namespace weft
