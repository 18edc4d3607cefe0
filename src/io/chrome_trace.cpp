// Metadata, slices, exposed stretches, counters, then arrows: an arrow must come after the slice it binds to.
#include "io/chrome_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "base/error.hpp"
#include "io/chrome_trace_events.hpp"
#include "io/chrome_trace_lanes.hpp"
#include "timeline/folded_spans.hpp"
#include "timeline/span_index.hpp"

namespace weft {
namespace {

std::size_t at(std::int32_t index) {
  return static_cast<std::size_t>(index);
}

[[noreturn]] void fail_without_spans(const TraceOptions& options) {
  fail("chrome trace: no span lies in iterations {}..{}", options.first_iteration, options.last_iteration);
}

class TraceWriter {
 public:
  TraceWriter(std::ostream& out, const Timeline& timeline, const Accounting& accounting, const TraceOptions& options)
      : timeline_(timeline),
        accounting_(accounting),
        options_(options),
        events_(out),
        lanes_(assign_lanes(timeline, options.first_iteration, options.last_iteration)) {
    for (const std::string& name : timeline.names) names_.push_back(json_quoted(name));
    if (lanes_.order.empty() && !timeline.spans.empty()) fail_without_spans(options);
    if (lanes_.order.empty()) return;
    begin_ = timeline.spans[at(lanes_.order.front())].start;
    end_ = begin_;
    for (const std::int32_t i : lanes_.order) {
      begin_ = std::min(begin_, timeline.spans[at(i)].start);
      end_ = std::max(end_, timeline.spans[at(i)].end);
    }
    if (begin_ < Nanos{}) origin_ = begin_;
  }

  void write() {
    events_.text("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"timeline\":");
    events_.text(timeline_.measured ? "\"measured\"" : "\"predicted\"");
    if (origin_ != Nanos{}) events_.text(",\"moved_us\":").micros(Nanos{} - origin_);
    for (const auto& [key, value] : options_.metadata)
      events_.text(fmt::format(",{}:{}", json_quoted(key), json_quoted(value)));
    events_.text("},\"traceEvents\":[");
    write_ranks();
    for (const std::int32_t span : lanes_.order) write_span(span);
    write_exposed();
    write_memory();
    write_flows();
    events_.text("\n]}\n");
    events_.flush();
  }

 private:
  void write_ranks() {
    for (std::int32_t pid = 0; at(pid) < timeline_.ranks.size(); ++pid) {
      const TimelineRank& rank = timeline_.ranks[at(pid)];
      const std::string many = rank.ranks > 1 ? fmt::format(", ×{}", rank.ranks) : "";
      metadata(pid, 0, "process_name", fmt::format("{} (rank {}{})", rank.name, rank.rank.value, many));
      sort_index(pid, 0, "process_sort_index", pid);
      const auto& threads = lanes_.threads[at(pid)];
      for (std::int32_t tid = 1; tid <= exposed_tid(pid); ++tid) {
        metadata(pid, tid, "thread_name", tid == exposed_tid(pid) ? "exposed communication" : threads[at(tid - 1)]);
        sort_index(pid, tid, "thread_sort_index", tid);
      }
    }
  }
  // Threads are counted from 1: Perfetto took thread 0 for the kernel's idle task.
  std::int32_t exposed_tid(std::int32_t rank) const {
    return static_cast<std::int32_t>(lanes_.threads[at(rank)].size()) + 1;
  }
  TraceEventStream& metadata_event(std::int32_t pid, std::int32_t tid, std::string_view what) {
    events_.event('M', pid);
    if (tid > 0) events_.text(",\"tid\":").number(tid);
    return events_.text(",\"name\":\"").text(what);
  }
  void metadata(std::int32_t pid, std::int32_t tid, std::string_view what, std::string_view name) {
    metadata_event(pid, tid, what).text("\",\"args\":{\"name\":").text(json_quoted(name)).text("}}");
  }
  void sort_index(std::int32_t pid, std::int32_t tid, std::string_view what, std::int32_t index) {
    metadata_event(pid, tid, what).text("\",\"args\":{\"sort_index\":").number(index).text("}}");
  }

  const std::string& name(std::int32_t index) const {
    if (index < 0 || at(index) >= names_.size()) {
      fail("chrome trace: name {} is not in 0..{}", index, static_cast<std::int64_t>(names_.size()) - 1);
    }
    return names_[at(index)];
  }
  TraceEventStream& slice(std::int32_t pid, std::int32_t tid, Nanos start, Nanos end) {
    events_.event('X', pid).text(",\"tid\":").number(tid);
    return events_.text(",\"ts\":").micros(start - origin_).text(",\"dur\":").micros(end - start);
  }

  void write_span(std::int32_t id) {
    const Span& span = timeline_.spans[at(id)];
    const TimelineOperation& operation = timeline_.operations[at(span.operation)];
    const bool transfer = operation.activity == Activity::transfer;
    slice(operation.rank, lanes_.tid[at(id)], span.start, span.end);
    events_.text(",\"name\":").text(name(operation.name)).text(",\"cat\":");
    if (transfer)
      events_.text("\"").text(name_of(operation.traffic)).text("\"");
    else
      events_.text(name(operation.phase));
    events_.text(",\"args\":{\"iteration\":").number(span.iteration);
    if (operation.micro_batch >= 0) events_.text(",\"micro_batch\":").number(operation.micro_batch);
    if (operation.group >= 0) events_.text(",\"group\":").text(name(operation.group));
    if (transfer) events_.text(",\"bytes\":").number(operation.bytes.value);
    const Nanos slowdown = std::max(Nanos{}, span.end - span.start - operation.alone);
    events_.text(",\"issued_us\":").micros(span.issued - origin_);
    events_.text(",\"ready_us\":").micros(span.ready - origin_);
    events_.text(",\"alone_us\":").micros(operation.alone);
    events_.text(",\"slowdown_us\":").micros(slowdown).text("}}");
  }

  void write_exposed() {
    std::vector<std::vector<ExposedStretch>> by_rank(timeline_.ranks.size());
    for (ExposedStretch stretch : accounting_.exposed) {
      if (stretch.rank < 0 || at(stretch.rank) >= by_rank.size()) {
        fail("chrome trace: an exposed stretch of rank {}, the timeline has {}", stretch.rank, by_rank.size());
      }
      stretch.begin = std::max(stretch.begin, begin_);
      stretch.end = std::min(stretch.end, end_);
      if (stretch.begin < stretch.end) by_rank[at(stretch.rank)].push_back(stretch);
    }
    for (std::int32_t rank = 0; at(rank) < by_rank.size(); ++rank) {
      for (const ExposedStretch& stretch : by_rank[at(rank)]) {
        slice(rank, exposed_tid(rank), stretch.begin, stretch.end).text(",\"name\":\"").text(name_of(stretch.kind));
        events_.text("\",\"cat\":\"exposed\"}");
      }
      write_exposed_level(rank, by_rank[at(rank)]);
    }
  }
  // One counter for each kind that is ever exposed on the rank: 1 while it is, 0 otherwise.
  void write_exposed_level(std::int32_t rank, const std::vector<ExposedStretch>& stretches) {
    std::array<bool, kTrafficKinds> occurs{};
    for (const ExposedStretch& stretch : stretches) occurs[static_cast<std::size_t>(stretch.kind)] = true;
    const auto level = [&](Nanos when, int active) {
      counter(rank, "exposed", when);
      const char* separator = "";
      for (int kind = 0; kind < kTrafficKinds; ++kind) {
        if (!occurs[static_cast<std::size_t>(kind)]) continue;
        events_.text(separator).text("\"").text(name_of(static_cast<TrafficKind>(kind)));
        events_.text(kind == active ? "\":1" : "\":0");
        separator = ",";
      }
      events_.text("}}");
    };
    constexpr int kNoKind = -1;
    if (!stretches.empty() && stretches.front().begin > begin_) level(begin_, kNoKind);
    for (std::size_t i = 0; i < stretches.size(); ++i) {
      level(stretches[i].begin, static_cast<int>(stretches[i].kind));
      const bool goes_on = i + 1 < stretches.size() && stretches[i + 1].begin == stretches[i].end;
      if (!goes_on) level(stretches[i].end, kNoKind);
    }
  }
  TraceEventStream& counter(std::int32_t rank, std::string_view what, Nanos when) {
    events_.event('C', rank).text(",\"ts\":").micros(when - origin_);
    return events_.text(",\"name\":\"").text(what).text("\",\"args\":{");
  }

  // Changes too small to see are left out: a counter of every buffer would be a third of the file.
  void write_memory() {
    for (std::int32_t rank = 0; at(rank) < timeline_.memory.size(); ++rank) {
      const auto& samples = timeline_.memory[at(rank)];
      std::int64_t peak = 0, written = -1;
      for (const MemorySample& sample : samples) peak = std::max(peak, sample.bytes.value);
      for (std::size_t i = 0; i < samples.size(); ++i) {
        // The last sample before the written time says how much there is at its begin.
        const bool last_before = samples[i].at < begin_ && (i + 1 == samples.size() || samples[i + 1].at > begin_);
        if (!last_before && (samples[i].at < begin_ || samples[i].at > end_)) continue;
        const std::int64_t bytes = samples[i].bytes.value;
        const bool seen = written < 0 || std::abs(bytes - written) >= peak / 512 || bytes == peak;
        if (!seen && !last_before && i + 1 < samples.size()) continue;
        written = bytes;
        counter(rank, "memory", std::max(samples[i].at, begin_)).text("\"bytes\":");
        events_.number(samples[i].bytes.value).text("}}");
      }
    }
  }

  // Messages from rank to rank first, then the arrows that decided a start, then the others; every rank has its share
  // of the bound.
  void write_flows() {
    if (timeline_.ranks.empty()) return;
    const auto ranks = static_cast<std::int64_t>(timeline_.ranks.size());
    room_.assign(timeline_.ranks.size(), (options_.max_flows + ranks - 1) / ranks);
    SpanIndex index(timeline_);
    write_messages();
    if (timeline_.dependency_begin.empty()) return;
    std::vector<std::int32_t> sources;
    for (const bool deciding : {true, false}) {
      for (const std::int32_t span : lanes_.order) {
        const Span& to = timeline_.spans[at(span)];
        const std::int32_t decided_by = index.last_predecessor(span);
        sources.clear();  // data and order may both wait for the same span: one arrow
        for (const Dependency& dependency : index.dependencies(to.operation)) {
          const std::int32_t from = index.find(dependency.operation, std::int64_t{to.iteration} - dependency.distance);
          if (from < 0 || (from == decided_by) != deciding) continue;
          if (std::find(sources.begin(), sources.end(), from) != sources.end()) continue;
          sources.push_back(from);
          write_flow(from, span);
        }
      }
    }
  }
  void write_messages() {
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> sender;  // (transfer, iteration) -> span
    for (const bool receiving : {false, true}) {
      for (const std::int32_t id : lanes_.order) {
        const Span& span = timeline_.spans[at(id)];
        const TimelineOperation& operation = timeline_.operations[at(span.operation)];
        if (operation.transfer < 0 || operation.receives != receiving) continue;
        const std::pair key{operation.transfer, span.iteration};
        if (!receiving) {
          sender.try_emplace(key, id);
        } else if (const auto found = sender.find(key); found != sender.end()) {
          write_flow(found->second, id);
        }
      }
    }
  }
  void write_flow(std::int32_t from, std::int32_t to) {
    const Span& source = timeline_.spans[at(from)];
    const Span& target = timeline_.spans[at(to)];
    const TimelineOperation& sender = timeline_.operations[at(source.operation)];
    const TimelineOperation& receiver = timeline_.operations[at(target.operation)];
    if (lanes_.tid[at(from)] == TraceLanes::kNotWritten) return;
    if (flows_ >= options_.max_flows || room_[at(receiver.rank)] <= 0) return;
    if (sender.rank == receiver.rank && sender.queue == receiver.queue) return;
    // An arrow binds to the slice that encloses its time: a zero-length slice encloses none, and a slice's end lies
    // outside of it. Skewed clocks must not turn an arrow around.
    if (source.start == source.end || target.start == target.end || source.start > target.start) return;
    const Nanos leaves = std::min(source.end - Nanos{1}, target.start);
    flow_point('s', sender.rank, lanes_.tid[at(from)], leaves).text("}");
    flow_point('f', receiver.rank, lanes_.tid[at(to)], target.start).text(",\"bp\":\"e\"}");
    ++flows_;
    --room_[at(receiver.rank)];
  }
  TraceEventStream& flow_point(char phase, std::int32_t pid, std::int32_t tid, Nanos when) {
    events_.event(phase, pid).text(",\"tid\":").number(tid).text(",\"ts\":").micros(when - origin_);
    return events_.text(",\"cat\":\"dependency\",\"name\":\"waits for\",\"id\":").number(flows_);
  }

  const Timeline& timeline_;
  const Accounting& accounting_;
  const TraceOptions& options_;
  TraceEventStream events_;
  TraceLanes lanes_;
  std::vector<std::string> names_;  // quoted
  Nanos begin_, end_;               // what the written spans cover
  Nanos origin_;                    // written as time 0
  std::int64_t flows_ = 0;
  std::vector<std::int64_t> room_;  // flows each rank may still have
};

}  // namespace

void write_chrome_trace(std::ostream& out, const Timeline& timeline, const Accounting& accounting,
                        const TraceOptions& options) {
  check_timeline(timeline);
  if (timeline.folded.empty()) {
    TraceWriter(out, timeline, accounting, options).write();
    return;
  }
  // What a written span waited for may have run one iteration earlier.
  const std::int32_t first = std::max(options.first_iteration, std::numeric_limits<std::int32_t>::min() + 1) - 1;
  const Timeline plain = expanded(timeline, first, options.last_iteration);
  if (plain.spans.empty()) fail_without_spans(options);
  TraceWriter(out, plain, accounting, options).write();
}

}  // namespace weft
