#include "io/trace/study_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "io/trace/chrome_trace_events.hpp"
#include "io/trace/lane_allocator.hpp"

namespace weft {
namespace {

// Threads of a process; streams come after.
constexpr std::int32_t kExposedTid = 1, kPathTid = 2, kFirstStreamTid = 3;

class StudyTraceWriter {
 public:
  StudyTraceWriter(std::ostream& out, const TraceStudy& study) : study_(study), events_(out) {
    bool first = true;
    for (std::size_t r = 0; r < study.ranks.size(); ++r) {
      for (const std::int32_t i : study.ranks[r].order.activities) {
        const Nanos start = study.ranks[r].trace->device[i].start + study.match.offset[r];
        if (first || start < origin_) origin_ = start;
        first = false;
      }
    }
  }

  void write() {
    events_.text("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"moved_us\":\"").micros(origin_);
    events_.text("\"},\"traceEvents\":[");
    for (std::size_t r = 0; r < study_.ranks.size(); ++r) write_rank(r);
    write_path();
    events_.text("\n]}\n");
    events_.flush();
  }

 private:
  static std::int32_t pid(std::size_t rank) { return static_cast<std::int32_t>(rank); }
  Nanos time(std::size_t rank, Nanos t) const { return t + study_.match.offset[rank] - origin_; }

  std::string rank_name(std::int32_t index) const {
    const DeviceTrace& trace = *study_.ranks[index].trace;
    return trace.rank.valid() ? fmt::format("rank {}", trace.rank.value) : fmt::format("trace {}", index);
  }

  void name_process(std::size_t rank) {
    events_.event('M', pid(rank)).text(",\"name\":\"process_name\",\"args\":{\"name\":");
    events_.text(json_quoted(rank_name(pid(rank)))).text("}}");
    events_.event('M', pid(rank)).text(",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":");
    events_.number(pid(rank)).text("}}");
  }
  void name_thread(std::size_t rank, std::int32_t tid, const std::string& name) {
    events_.event('M', pid(rank)).text(",\"tid\":").number(tid).text(",\"name\":\"thread_name\",\"args\":{\"name\":");
    events_.text(json_quoted(name)).text("}}");
    events_.event('M', pid(rank)).text(",\"tid\":").number(tid);
    events_.text(",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":").number(tid).text("}}");
  }
  // Without its closing brace.
  void slice(std::size_t rank, std::int32_t tid, Nanos begin, Nanos end, std::string_view quoted_name,
             std::string_view category) {
    events_.event('X', pid(rank)).text(",\"tid\":").number(tid).text(",\"ts\":").micros(begin).text(",\"dur\":");
    events_.micros(end - begin).text(",\"name\":").text(quoted_name).text(",\"cat\":\"").text(category).text("\"");
  }

  void write_rank(std::size_t r) {
    const RankStudy& rank = study_.ranks[r];
    std::vector<std::string> names;
    for (const std::string& name : rank.trace->names) names.push_back(json_quoted(name));
    quoted_.push_back(std::move(names));
    name_process(r);
    name_thread(r, kExposedTid, "exposed communication");
    name_thread(r, kPathTid, "critical path");
    for (const DeviceExposure& stretch : rank.exposed.stretches) write_exposure(r, stretch);
    std::int32_t tid = kFirstStreamTid;
    for (const DeviceStream& stream : rank.order.streams) tid = write_stream(r, stream, tid);
  }

  const std::string& quoted_name(std::size_t rank, std::int32_t activity) const {
    const std::int32_t name = study_.ranks[rank].trace->device[activity].name;
    return quoted_[rank][name];
  }

  void write_exposure(std::size_t r, const DeviceExposure& stretch) {
    slice(r, kExposedTid, time(r, stretch.begin), time(r, stretch.end), json_quoted(name_of(stretch.reason)),
          "exposed");
    events_.text(",\"args\":{\"communication\":").text(quoted_name(r, stretch.activity));
    if (stretch.next != kAbsent) events_.text(",\"next computation\":").text(quoted_name(r, stretch.next));
    if (stretch.cause != kAbsent) events_.text(",\"behind\":").text(quoted_name(r, stretch.cause));
    if (stretch.peer != kAbsent) events_.text(",\"late peer\":").text(json_quoted(rank_name(stretch.peer)));
    events_.text("}}");
  }

  // The tid after its lanes.
  std::int32_t write_stream(std::size_t r, const DeviceStream& stream, std::int32_t tid) {
    const RankStudy& rank = study_.ranks[r];
    LaneAllocator lanes;
    for (const std::int32_t i : stream.activities) {
      const DeviceActivity& activity = rank.trace->device[i];
      const std::int32_t lane = lanes.take(activity.start, activity.end);
      slice(r, tid + lane, time(r, activity.start), time(r, activity.end), quoted_name(r, i), name_of(activity.kind));
      if (activity.kind == KernelKind::communication) write_collective(rank, i);
      events_.text("}");
    }
    std::string name = fmt::format("stream {}", stream.stream);
    if (rank.order.streams.front().device != rank.order.streams.back().device) {
      name = fmt::format("device {} {}", stream.device, name);
    }
    for (std::int32_t lane = 0; lane < lanes.count(); ++lane) {
      name_thread(r, tid + lane, lane == 0 ? name : fmt::format("{} (lane {})", name, lane + 1));
    }
    return tid + lanes.count();
  }

  void write_collective(const RankStudy& rank, std::int32_t i) {
    const TracedCommunication& what = rank.communication.of[i];
    const std::string& label = rank.communication.labels[what.label];
    const std::string& group = rank.communication.groups[what.group].label;
    events_.text(",\"args\":{\"collective\":").text(json_quoted(label)).text(",\"group\":").text(json_quoted(group));
    if (what.bytes >= 0) events_.text(",\"bytes\":").number(what.bytes);
    events_.text("}");
  }

  void write_path() {
    for (const PathSegment& segment : study_.path) {
      const std::size_t r = segment.rank;
      slice(r, kPathTid, segment.begin - origin_, segment.end - origin_, json_quoted(name_of(segment.kind)),
            "critical_path");
      if (segment.index != kAbsent) {
        const bool host = segment.kind == PathKind::host_wake;
        const std::int32_t name =
            host ? study_.ranks[r].trace->host[segment.index].name : study_.ranks[r].trace->device[segment.index].name;
        events_.text(",\"args\":{\"of\":").text(quoted_[r][name]).text("}");
      }
      events_.text("}");
    }
  }

  const TraceStudy& study_;
  TraceEventStream events_;
  Nanos origin_{0};
  std::vector<std::vector<std::string>> quoted_;  // by rank: its names
};

}  // namespace

void write_study_trace(std::ostream& out, const TraceStudy& study) {
  StudyTraceWriter(out, study).write();
}

}  // namespace weft
