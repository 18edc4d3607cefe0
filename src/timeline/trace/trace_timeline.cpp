#include "timeline/trace/trace_timeline.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace weft {
namespace {

class TraceDrawing {
 public:
  explicit TraceDrawing(const TraceStudy& study) : study_(study) {}

  DrawnTrace draw() {
    Timeline& timeline = drawn_.timeline;
    timeline.measured = true;
    for (std::size_t r = 0; r < study_.ranks.size(); ++r) add_rank(r);
    timeline.dependency_begin.push_back(static_cast<std::int32_t>(timeline.dependencies.size()));
    number_transfers();
    add_path();
    set_window();
    return std::move(drawn_);
  }

 private:
  std::int32_t name(const std::string& text) {
    const auto next = static_cast<std::int32_t>(drawn_.timeline.names.size());
    const auto [at, added] = names_.try_emplace(text, next);
    if (added) drawn_.timeline.names.push_back(text);
    return at->second;
  }

  void add_rank(std::size_t r) {
    const RankStudy& rank = study_.ranks[r];
    const DeviceTrace& trace = *rank.trace;
    TimelineRank& drawn = drawn_.timeline.ranks.emplace_back();
    drawn.rank = trace.rank;
    drawn.name = trace.rank.valid() ? "rank " + std::to_string(trace.rank.value) : "trace " + std::to_string(r);
    for (const DeviceStream& stream : rank.order.streams) {
      drawn.queues.push_back("stream " + std::to_string(stream.stream));
    }
    std::vector<std::int32_t>& operations = operation_.emplace_back(trace.device.size(), -1);
    for (const std::int32_t i : rank.order.activities) {
      operations[i] = static_cast<std::int32_t>(drawn_.timeline.operations.size());
      add_activity(r, i);
    }
    for (const DeviceExposure& stretch : rank.exposed.stretches) {
      const Nanos offset = study_.match.offset[r];
      drawn_.exposed.push_back(
          {static_cast<std::int32_t>(r), TrafficKind::other, stretch.begin + offset, stretch.end + offset});
    }
  }

  void add_activity(std::size_t r, std::int32_t i) {
    const RankStudy& rank = study_.ranks[r];
    const DeviceActivity& activity = rank.trace->device[i];
    Timeline& timeline = drawn_.timeline;
    TimelineOperation operation;
    operation.name = name(rank.trace->names[activity.name]);
    operation.phase = name(std::string(name_of(activity.kind)));
    operation.rank = static_cast<std::int32_t>(r);
    operation.queue = QueueId{rank.order.stream[i]};
    operation.alone = activity.duration();
    if (activity.kind == KernelKind::communication) {
      const TracedCommunication& traced = rank.communication.of[i];
      const TraceGroup& group = rank.communication.groups[traced.group];
      operation.activity = Activity::transfer;
      operation.collective = name(rank.communication.labels[traced.label]);
      operation.group = name(group.label);
      operation.group_size = static_cast<std::int32_t>(group.size);
      operation.bytes = Bytes{std::max<std::int64_t>(0, traced.bytes)};
    }
    add_waits(rank.order, i);
    const Nanos offset = study_.match.offset[r], start = activity.start + offset;
    const auto known = [&](Nanos time) { return time == kNoTime ? start : time + offset; };
    timeline.spans.push_back({static_cast<std::int32_t>(timeline.operations.size()), 0, known(activity.issued),
                              known(activity.ready), start, activity.end + offset});
    timeline.operations.push_back(operation);
  }

  // Activities come by start, so what is waited for has its number already; where it has none, the trace's clock erred.
  void add_waits(const DeviceOrder& order, std::int32_t activity) {
    Timeline& timeline = drawn_.timeline;
    timeline.dependency_begin.push_back(static_cast<std::int32_t>(timeline.dependencies.size()));
    const auto add = [&](std::int32_t before, bool in_order) {
      const std::int32_t operation = before == kAbsent ? -1 : operation_.back()[before];
      if (operation >= 0) timeline.dependencies.push_back({operation, 0, in_order, false});
    };
    add(order.previous_on_stream(activity), true);
    for (const DeviceDependency& wait : order.waits_of(activity)) add(wait.before, false);
  }

  void number_transfers() {
    for (std::size_t c = 0; c < study_.match.collectives(); ++c) {
      for (std::size_t m = study_.match.begin[c]; m < study_.match.begin[c + 1]; ++m) {
        const CollectiveMember& member = study_.match.members[m];
        const std::int32_t operation = operation_[member.rank][member.activity];
        if (operation >= 0) drawn_.timeline.operations[operation].transfer = static_cast<std::int32_t>(c);
      }
    }
  }

  // Of the device's part of the path; between its steps the host was waited for.
  void add_path() {
    for (const PathSegment& segment : study_.path) {
      const bool runs = segment.kind == PathKind::computation || segment.kind == PathKind::communication ||
                        segment.kind == PathKind::memory;
      if (!runs || segment.index == kAbsent) continue;
      const std::int32_t operation = operation_[segment.rank][segment.index];
      if (operation >= 0) drawn_.path.push_back({operation, 1, 0, segment.begin, segment.end});
    }
  }

  void set_window() {
    Timeline& timeline = drawn_.timeline;
    if (timeline.spans.empty()) return;
    Nanos begin = timeline.spans.front().start, end = timeline.spans.front().end;
    for (const Span& span : timeline.spans) {
      begin = std::min(begin, span.start);
      end = std::max(end, span.end);
    }
    timeline.steady_begin = begin;
    timeline.period_ns = static_cast<double>((end - begin).value);
  }

  const TraceStudy& study_;
  DrawnTrace drawn_;
  std::map<std::string, std::int32_t> names_;
  std::vector<std::vector<std::int32_t>> operation_;  // by rank, then activity; -1: not looked at
};

}  // namespace

DrawnTrace draw_traces(const TraceStudy& study) {
  return TraceDrawing(study).draw();
}

}  // namespace weft
