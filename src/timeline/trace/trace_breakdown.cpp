// HTA works on a table of all events that name a stream. This walks the same rows in the same order.
#include "timeline/trace/trace_breakdown.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "timeline/trace/hta_times.hpp"

namespace weft {
namespace {

struct StreamRow {
  Nanos start, end;
  std::int32_t position = 0;
  KernelKind kind = KernelKind::computation;
};

// When the last step starts, as far as it is left out.
class LastStep {
 public:
  LastStep(const DeviceTrace& trace, bool without) : trace_(trace) {
    if (!without || trace.source != TraceSource::kineto || trace.host.empty()) return;
    Nanos last = kNoTime;
    for (const auto* steps : {&trace.steps, &trace.device_steps}) {
      for (const StepMark& step : *steps) last = std::max(last, step.start);
    }
    // HTA drops a rank without a step of its own; an answer that says so is more useful.
    if (last != kNoTime) begin_ = hta_start(trace, last);
  }

  bool keeps(Nanos issued) const { return !begin_ || (issued != kNoTime && hta_start(trace_, issued) < *begin_); }
  // Activities with a correlation count by their launch, the others by themselves.
  bool keeps(const DeviceActivity& activity) const {
    return keeps(activity.correlation >= 0 ? activity.issued : activity.start);
  }
  bool keeps(const SyncActivity& sync) const {
    if (!begin_) return true;
    if (sync.correlation < 0) return keeps(sync.start);
    return sync.call != kAbsent && keeps(trace_.host[sync.call].start);
  }

 private:
  const DeviceTrace& trace_;
  std::optional<Nanos> begin_;
};

std::vector<StreamRow> stream_rows(const DeviceTrace& trace, bool without_last_step) {
  const LastStep last(trace, without_last_step);
  std::vector<StreamRow> rows;
  rows.reserve(trace.device.size());
  const auto add = [&](Nanos start, Nanos end, std::int32_t position, KernelKind kind) {
    rows.push_back({hta_start(trace, start), hta_end(trace, start, end), position, kind});
  };
  for (const DeviceActivity& activity : trace.device) {
    if (last.keeps(activity)) add(activity.start, activity.end, activity.position, activity.kind);
  }
  for (const DeviceActivity& mark : trace.stream_marks) {
    if (last.keeps(mark)) add(mark.start, mark.end, mark.position, mark.kind);
  }
  for (const SyncActivity& sync : trace.syncs) {
    if (!sync.names_stream || !last.keeps(sync)) continue;
    add(sync.start, sync.end, sync.position, kernel_kind(trace.names[sync.name]));
  }
  std::sort(rows.begin(), rows.end(), [](const StreamRow& a, const StreamRow& b) {
    return a.start != b.start ? a.start < b.start : a.position < b.position;
  });
  return rows;
}

struct Interval {
  Nanos start, end;
};

// The union of the rows: what touches or overlaps is one. A row that ends before it starts and that nothing before it
// reaches is an interval of negative length.
template <class Wanted>
std::vector<Interval> merged(const std::vector<StreamRow>& rows, Wanted wanted) {
  std::vector<Interval> result;
  Nanos latest;
  for (const StreamRow& row : rows) {
    if (!wanted(row.kind)) continue;
    if (result.empty() || row.start > latest) {
      latest = result.empty() ? row.end : std::max(latest, row.end);
      result.push_back({row.start, row.end});
    } else {
      latest = std::max(latest, row.end);
      result.back().end = std::max(result.back().end, row.end);
    }
  }
  return result;
}

Nanos length(const std::vector<Interval>& intervals) {
  Nanos sum;
  for (const Interval& interval : intervals) sum += interval.end - interval.start;
  return sum;
}

struct Change {
  Nanos at;
  int by = 0;
};

void add_changes(const std::vector<Interval>& intervals, int weight, std::vector<Change>& changes) {
  for (const Interval& interval : intervals) {
    changes.push_back({interval.start, weight});
    changes.push_back({interval.end, -weight});
  }
}

// Calls visit(sum of the weights that are on, time) for every stretch between changes.
template <class Visit>
void sweep(std::vector<Change>& changes, Visit visit) {
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.at < b.at; });
  int running = 0;
  for (std::size_t i = 0; i + 1 < changes.size(); ++i) {
    running += changes[i].by;
    visit(running, changes[i + 1].at - changes[i].at);
  }
}

// As numpy rounds: scaled, to the nearest, halves to even, and back.
double rounded(double value, double scale) {
  return std::nearbyint(value * scale) / scale;
}

double percent(Nanos part, Nanos whole, double scale) {
  return rounded(100.0 * (static_cast<double>(part.value) / static_cast<double>(whole.value)), scale);
}

void set_percentages(std::vector<KernelTypeTime>& rows) {
  Nanos sum;
  for (const KernelTypeTime& row : rows) sum += row.time;
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.time > b.time; });
  for (KernelTypeTime& row : rows) {
    const double share = static_cast<double>(row.time.value) / static_cast<double>(sum.value);
    row.percentage = sum.value == 0 ? 0 : rounded(share * 100, 10);
  }
}

constexpr std::array<KernelKind, 3> kTypes = {KernelKind::computation, KernelKind::communication, KernelKind::memory};
constexpr std::array<const char*, 3> kTypeNames = {"COMPUTATION", "COMMUNICATION", "MEMORY"};

std::vector<KernelTypeTime> kernel_type_times(const std::vector<StreamRow>& rows) {
  std::vector<Change> changes;
  for (std::size_t type = 0; type < kTypes.size(); ++type) {
    add_changes(merged(rows, [&](KernelKind kind) { return kind == kTypes[type]; }), 1 << type, changes);
  }
  std::array<Nanos, 8> time{};
  std::array<bool, 8> occurs{};
  sweep(changes, [&](int running, Nanos stretch) {
    if (running <= 0 || running >= 8) return;
    time[running] += stretch;
    if (stretch != Nanos{}) occurs[running] = true;
  });
  std::vector<KernelTypeTime> result;
  for (std::size_t kinds = 1; kinds < time.size(); ++kinds) {
    if (occurs[kinds]) result.push_back({static_cast<std::uint8_t>(kinds), time[kinds], 0});
  }
  set_percentages(result);
  return result;
}

}  // namespace

std::string kernel_type_name(std::uint8_t kinds) {
  std::string name;
  for (std::size_t type = 0; type < kTypes.size(); ++type) {
    if ((kinds & (1U << type)) == 0) continue;
    if (!name.empty()) name += " overlapping ";
    name += kTypeNames[type];
  }
  return name;
}

bool leaves_out_last_step(std::span<const DeviceTrace> traces) {
  std::set<std::int64_t> numbers;
  for (const DeviceTrace& trace : traces) {
    if (trace.source != TraceSource::kineto) continue;
    for (const StepMark& step : trace.steps) numbers.insert(step.number);
    for (const StepMark& step : trace.device_steps) numbers.insert(step.number);
  }
  return numbers.size() >= 2;
}

RankBreakdown break_down(const DeviceTrace& trace, bool without_last_step) {
  const std::vector<StreamRow> rows = stream_rows(trace, without_last_step);
  RankBreakdown result;
  result.activities = static_cast<std::int64_t>(rows.size());
  if (rows.empty()) return result;
  const auto of_kind = [&](KernelKind wanted) { return merged(rows, [&](KernelKind kind) { return kind == wanted; }); };
  const std::vector<Interval> busy = merged(rows, [](KernelKind) { return true; });
  const std::vector<Interval> computation = of_kind(KernelKind::computation);
  const std::vector<Interval> communication = of_kind(KernelKind::communication);
  result.kernel = busy.back().end - busy.front().start;
  result.idle = result.kernel - length(busy);
  result.compute = length(computation);
  result.non_compute = result.kernel - result.compute - result.idle;
  result.communication = length(communication);
  constexpr int kCommunication = 1, kComputation = 2;
  std::vector<Change> changes;
  add_changes(communication, kCommunication, changes);
  add_changes(computation, kComputation, changes);
  sweep(changes, [&](int running, Nanos stretch) {
    if (running == (kCommunication | kComputation)) result.overlapped += stretch;
  });
  if (result.communication != Nanos{}) result.overlap_pct = percent(result.overlapped, result.communication, 100);
  if (result.kernel != Nanos{}) {
    result.idle_pct = percent(result.idle, result.kernel, 100);
    result.compute_pct = percent(result.compute, result.kernel, 100);
    result.non_compute_pct = percent(result.non_compute, result.kernel, 100);
  }
  result.kernel_types = kernel_type_times(rows);
  return result;
}

std::vector<KernelTypeTime> sum_kernel_types(std::span<const RankBreakdown> ranks) {
  std::array<Nanos, 8> time{};
  std::array<bool, 8> occurs{};
  for (const RankBreakdown& rank : ranks) {
    for (const KernelTypeTime& row : rank.kernel_types) {
      time[row.kinds] += row.time;
      occurs[row.kinds] = true;
    }
  }
  std::vector<KernelTypeTime> result;
  for (std::size_t kinds = 1; kinds < time.size(); ++kinds) {
    if (occurs[kinds]) result.push_back({static_cast<std::uint8_t>(kinds), time[kinds], 0});
  }
  set_percentages(result);
  return result;
}

std::vector<bool> counted_activities(const DeviceTrace& trace, bool without_last_step) {
  const LastStep last(trace, without_last_step);
  std::vector<bool> counted;
  counted.reserve(trace.device.size());
  for (const DeviceActivity& activity : trace.device) counted.push_back(last.keeps(activity));
  return counted;
}

std::vector<KernelSummary> summarize_kernels(const DeviceTrace& trace, bool without_last_step) {
  const std::vector<bool> counted = counted_activities(trace, without_last_step);
  std::vector<KernelSummary> by_name(trace.names.size());
  for (std::size_t i = 0; i < trace.device.size(); ++i) {
    if (!counted[i]) continue;
    const DeviceActivity& activity = trace.device[i];
    KernelSummary& summary = by_name[activity.name];
    const Nanos duration = activity.duration();
    if (summary.count == 0) summary = {activity.name, activity.kind, 0, {}, duration, duration};
    ++summary.count;
    summary.total += duration;
    summary.shortest = std::min(summary.shortest, duration);
    summary.longest = std::max(summary.longest, duration);
  }
  std::erase_if(by_name, [](const KernelSummary& summary) { return summary.count == 0; });
  std::stable_sort(by_name.begin(), by_name.end(), [](const KernelSummary& a, const KernelSummary& b) {
    return a.kind != b.kind ? a.kind < b.kind : a.total > b.total;
  });
  return by_name;
}

}  // namespace weft
