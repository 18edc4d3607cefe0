#include "timeline/trace/path_entries.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace weft {
namespace {

using Entries = std::map<std::pair<PathKind, std::string>, PathEntry>;

void add(Entries& entries, PathKind kind, const std::string& name, Nanos time) {
  PathEntry& entry = entries[{kind, name}];
  entry.kind = kind;
  entry.name = name;
  ++entry.count;
  entry.time += time;
}

// The outermost operators and calls of one thread, in order; they do not overlap.
std::vector<std::int32_t> outermost(const DeviceTrace& trace, std::int32_t thread) {
  std::vector<std::int32_t> result;
  Nanos end = kNoTime;
  for (std::size_t i = 0; i < trace.host.size(); ++i) {
    const HostActivity& activity = trace.host[i];
    if (activity.thread != thread || (activity.kind != HostKind::op && activity.kind != HostKind::runtime)) continue;
    if (end != kNoTime && activity.start < end) continue;
    result.push_back(static_cast<std::int32_t>(i));
    end = activity.end;
  }
  return result;
}

// Segments of one thread, ascending, shared out among its operators.
void add_host(Entries& entries, const DeviceTrace& trace, std::int32_t thread,
              const std::vector<TimeInterval>& segments) {
  const std::vector<std::int32_t> operators = outermost(trace, thread);
  std::size_t next = 0;
  for (const TimeInterval& segment : segments) {
    Nanos left = segment.end - segment.begin;
    const auto host = [&](std::size_t i) -> const HostActivity& { return trace.host[operators[i]]; };
    while (next < operators.size() && host(next).end <= segment.begin) ++next;
    for (std::size_t i = next; i < operators.size() && host(i).start < segment.end; ++i) {
      const Nanos time = std::min(host(i).end, segment.end) - std::max(host(i).start, segment.begin);
      if (time <= Nanos{0}) continue;
      add(entries, PathKind::host, trace.names[host(i).name], time);
      left -= time;
    }
    if (left > Nanos{0}) add(entries, PathKind::host, std::string(), left);
  }
}

}  // namespace

std::vector<PathEntry> path_entries(const TraceStudy& study) {
  Entries entries;
  std::map<std::pair<std::int32_t, std::int32_t>, std::vector<TimeInterval>> host;  // by rank and thread
  for (const PathSegment& segment : study.path) {
    const std::size_t rank = segment.rank;
    const DeviceTrace& trace = *study.ranks[rank].trace;
    if (segment.kind == PathKind::host && segment.thread != kAbsent) {
      const Nanos offset = study.match.offset[rank];
      host[{segment.rank, segment.thread}].push_back({segment.begin - offset, segment.end - offset});
      continue;
    }
    std::string name;
    if (segment.index != kAbsent) {
      const std::size_t index = segment.index;
      if (trace.source == TraceSource::weft) {
        name = operation_name(study.ranks[rank].totals_input(), segment.index);  // the same of all layers
      } else {
        const std::int32_t number =
            segment.kind == PathKind::host_wake ? trace.host[index].name : trace.device[index].name;
        name = trace.names[number];
      }
    }
    add(entries, segment.kind, name, segment.end - segment.begin);
  }
  for (const auto& [where, segments] : host) add_host(entries, *study.ranks[where.first].trace, where.second, segments);
  std::vector<PathEntry> result;
  for (auto& [key, entry] : entries) result.push_back(std::move(entry));
  std::stable_sort(result.begin(), result.end(),
                   [](const PathEntry& a, const PathEntry& b) { return a.time > b.time; });
  return result;
}

}  // namespace weft
