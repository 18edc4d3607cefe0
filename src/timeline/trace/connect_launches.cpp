// Finds which call launched what, from correlation ids and from the nesting of host activities.
#include <algorithm>
#include <numeric>

#include "timeline/trace/device_trace.hpp"

namespace weft {
namespace {

std::size_t at(std::int32_t index) {
  return index;
}

template <class Activity>
void sort_by_start(std::vector<Activity>& list) {
  const auto before = [](const Activity& a, const Activity& b) {
    return a.start != b.start ? a.start < b.start : a.end > b.end;
  };
  // A stable sort keeps the file's order of what starts and ends together. Many files are sorted already.
  if (!std::is_sorted(list.begin(), list.end(), before)) std::stable_sort(list.begin(), list.end(), before);
}

// Which host activity has a correlation id; the earliest where several do.
class Correlations {
 public:
  explicit Correlations(const std::vector<HostActivity>& host) {
    for (std::size_t i = 0; i < host.size(); ++i) {
      if (host[i].correlation >= 0) entries_.push_back({host[i].correlation, static_cast<std::int32_t>(i)});
    }
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return a.correlation != b.correlation ? a.correlation < b.correlation : a.host < b.host;
    });
  }

  std::int32_t find(std::int64_t correlation) const {
    if (correlation < 0) return kAbsent;
    const auto found = std::lower_bound(entries_.begin(), entries_.end(), correlation,
                                        [](const Entry& entry, std::int64_t id) { return entry.correlation < id; });
    return found != entries_.end() && found->correlation == correlation ? found->host : kAbsent;
  }

 private:
  struct Entry {
    std::int64_t correlation;
    std::int32_t host;
  };
  std::vector<Entry> entries_;
};

// The last step that has begun at `t` and not ended.
std::int32_t step_at(const std::vector<StepMark>& steps, Nanos t) {
  auto after =
      std::upper_bound(steps.begin(), steps.end(), t, [](Nanos time, const StepMark& s) { return time < s.start; });
  // Steps follow each other; only a few may overlap.
  for (int looked_at = 0; after != steps.begin() && looked_at < 8; ++looked_at) {
    --after;
    if (t < after->end) return static_cast<std::int32_t>(after - steps.begin());
  }
  return kAbsent;
}

void link_launches(DeviceTrace& trace, std::vector<DeviceActivity>& list, const Correlations& correlations) {
  for (DeviceActivity& activity : list) {
    activity.launch = correlations.find(activity.correlation);
    if (activity.launch != kAbsent) activity.issued = trace.host[at(activity.launch)].start;
    if (activity.step == kAbsent && activity.issued != kNoTime) activity.step = step_at(trace.steps, activity.issued);
  }
}

// Host activities that speak of a collective, by thread and start.
class CollectiveScopes {
 public:
  explicit CollectiveScopes(const DeviceTrace& trace) : trace_(trace), by_thread_(trace.threads.size()) {
    for (std::size_t i = 0; i < trace.host.size(); ++i) {
      const HostActivity& activity = trace.host[i];
      if (activity.collective == kAbsent) continue;
      // PyTorch records the wait for a collective as if it were one.
      if (trace.names[at(trace.collectives[at(activity.collective)].name)] == "wait") continue;
      by_thread_[at(activity.thread)].push_back(static_cast<std::int32_t>(i));
    }
  }

  std::int32_t around(const HostActivity& launch) const {
    const auto& scopes = by_thread_[at(launch.thread)];
    auto next = std::upper_bound(scopes.begin(), scopes.end(), launch.start,
                                 [&](Nanos t, std::int32_t scope) { return t < trace_.host[at(scope)].start; });
    // record_param_comms encloses nccl:all_reduce and knows the group, which the inner one does not.
    constexpr int kMaxDepth = 8;
    std::int32_t found = kAbsent;
    for (int steps = 0; next != scopes.begin() && steps < kMaxDepth; ++steps) {
      const HostActivity& scope = trace_.host[at(*--next)];
      if (scope.end < launch.end) continue;
      if (found == kAbsent) found = scope.collective;
      if (trace_.collectives[at(scope.collective)].group_size > 0) return scope.collective;
    }
    return found;
  }

 private:
  const DeviceTrace& trace_;
  std::vector<std::vector<std::int32_t>> by_thread_;
};

void link_collectives(DeviceTrace& trace) {
  const CollectiveScopes scopes(trace);
  for (DeviceActivity& activity : trace.device) {
    if (activity.kind != KernelKind::communication || activity.collective != kAbsent || activity.launch == kAbsent)
      continue;
    activity.collective = scopes.around(trace.host[at(activity.launch)]);
  }
}

}  // namespace

void connect_launches(DeviceTrace& trace) {
  sort_by_start(trace.device);
  sort_by_start(trace.host);
  sort_by_start(trace.syncs);
  sort_by_start(trace.steps);
  sort_by_start(trace.device_steps);
  sort_by_start(trace.stream_marks);
  const Correlations correlations(trace.host);
  link_launches(trace, trace.device, correlations);
  link_launches(trace, trace.stream_marks, correlations);
  for (SyncActivity& sync : trace.syncs) {
    sync.call = correlations.find(sync.correlation);
    sync.record_call = correlations.find(sync.record_correlation);
  }
  link_collectives(trace);
}

void set_steps(DeviceTrace& trace, std::vector<StepMark> marks) {
  std::vector<std::size_t> order(marks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return marks[a].start != marks[b].start ? marks[a].start < marks[b].start : marks[a].end > marks[b].end;
  });
  std::vector<std::int32_t> place(marks.size());
  trace.steps.clear();
  for (std::size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = static_cast<std::int32_t>(i);
    trace.steps.push_back(marks[order[i]]);
  }
  for (DeviceActivity& activity : trace.device) activity.step = place[at(activity.step)];
}

}  // namespace weft
