// Metadata, slices, exposed stretches, counters, then arrows: an arrow must come after the slice it binds to.
#include "io/trace/chrome_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "io/trace/chrome_trace_arrows.hpp"
#include "io/trace/chrome_trace_events.hpp"
#include "io/trace/chrome_trace_lanes.hpp"
#include "io/trace/trace_excerpts.hpp"
#include "timeline/folded_spans.hpp"

namespace weft {
namespace {

std::size_t at(std::int32_t index) {
  return index;
}

[[noreturn]] void fail_without_spans(const TraceOptions& options) {
  fail("chrome trace: no span lies in iterations {}..{}", options.first_iteration, options.last_iteration);
}

void write_words(TraceEventStream& events, const std::vector<std::pair<std::string, std::string>>& metadata) {
  for (const auto& [key, value] : metadata) events.text(fmt::format(",{}:{}", json_quoted(key), json_quoted(value)));
}

// What the file contains before this timeline.
struct Neighbours {
  std::int32_t processes = 0;
  std::int64_t arrows = 0;
  std::string label;       // of this timeline's processes
  bool from_zero = false;  // the first span starts at time 0
};

class TraceWriter {
 public:
  TraceWriter(TraceEventStream& events, const Timeline& timeline, const Accounting& accounting,
              const TraceOptions& options, const Neighbours& others = {})
      : timeline_(timeline),
        accounting_(accounting),
        options_(options),
        others_(others),
        events_(events),
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
    if (others.from_zero || begin_ < Nanos{}) origin_ = begin_;
    leave_out_the_repetitive();
  }

  std::int64_t left_out() const { return excerpts_.spans_left_out(); }

  // The file up to its events.
  void write_head() {
    events_.text("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"timeline\":");
    events_.text(timeline_.measured ? "\"measured\"" : "\"predicted\"");
    if (origin_ != Nanos{}) events_.text(",\"moved_us\":").micros(Nanos{} - origin_);
    constexpr double kMaxPeriod = 9e15;  // ns; the accounting's limit
    if (!timeline_.measured && timeline_.period_ns >= 1 && timeline_.period_ns <= kMaxPeriod) {
      events_.text(",\"step_us\":").micros(Nanos{static_cast<std::int64_t>(std::llround(timeline_.period_ns))});
    }
    write_words(events_, options_.metadata);
    if (left_out() > 0) write_words(events_, {{"left_out", what_is_left_out()}});
    events_.text("},\"traceEvents\":[");
  }
  void write_events() {
    write_ranks();
    for (const std::int32_t span : lanes_.order) write_span(span);
    write_exposed();
    write_memory();
    write_arrows();
    write_left_out();
  }
  // Returns the numbers from which the next timeline of the file counts.
  Neighbours others() const {
    return {others_.processes + static_cast<std::int32_t>(timeline_.ranks.size()), others_.arrows + arrows_,
            others_.label, others_.from_zero};
  }

 private:
  void leave_out_the_repetitive() {
    std::vector<Nanos> starts;
    starts.reserve(lanes_.order.size());
    for (const std::int32_t span : lanes_.order) starts.push_back(timeline_.spans[at(span)].start);
    excerpts_ = choose_excerpts(std::move(starts), end_, options_.max_spans);
    if (left_out() == 0) return;
    std::erase_if(lanes_.order, [&](std::int32_t span) {
      if (excerpts_.shows(timeline_.spans[at(span)].start)) return false;
      lanes_.tid[at(span)] = TraceLanes::kNotWritten;
      return true;
    });
  }
  std::string what_is_left_out() const {
    std::string text = fmt::format("{} of {} operations", left_out(), left_out() + std::ssize(lanes_.order));
    for (const TraceExcerpts::Stretch& s : excerpts_.left_out) {
      text += fmt::format(", {} us to {} us", (s.begin - origin_).value / 1000, (s.end - origin_).value / 1000);
    }
    return options_.how_to_get_all.empty() ? text : fmt::format("{}; all: {}", text, options_.how_to_get_all);
  }
  // Marks the time that is not written, so that nobody takes it for idle time.
  void write_left_out() {
    if (left_out() == 0) return;
    const auto pid = static_cast<std::int32_t>(timeline_.ranks.size());
    metadata(pid, 0, "process_name", "not written");
    sort_index(pid, 0, "process_sort_index", -1);
    metadata(pid, 1, "thread_name", "left out");
    for (const TraceExcerpts::Stretch& s : excerpts_.left_out) {
      slice(pid, 1, s.begin, s.end).text(",\"name\":").text(json_quoted(fmt::format("{} operations", s.spans)));
      events_.text(",\"cat\":\"left_out\"}");
    }
  }
  void write_ranks() {
    for (std::int32_t pid = 0; at(pid) < timeline_.ranks.size(); ++pid) {
      const TimelineRank& rank = timeline_.ranks[at(pid)];
      metadata(pid, 0, "process_name", process_name(rank));
      sort_index(pid, 0, "process_sort_index", others_.processes + pid);
      const auto& threads = lanes_.threads[at(pid)];
      for (std::int32_t tid = 1; tid <= exposed_tid(pid); ++tid) {
        metadata(pid, tid, "thread_name", tid == exposed_tid(pid) ? "exposed communication" : threads[at(tid - 1)]);
        sort_index(pid, tid, "thread_sort_index", tid);
      }
    }
  }
  std::string process_name(const TimelineRank& rank) const {
    const std::string label = others_.label.empty() ? "" : fmt::format("{} ", others_.label);
    const std::string number = fmt::format("rank {}", rank.rank.value);
    if (rank.ranks == 1 && rank.name == number) return fmt::format("{}{}", label, number);
    const std::string many = rank.ranks > 1 ? fmt::format(", ×{}", rank.ranks) : "";
    return fmt::format("{}{} ({}{})", label, rank.name, number, many);
  }
  // Threads are counted from 1: Perfetto took thread 0 for the kernel's idle task.
  std::int32_t exposed_tid(std::int32_t rank) const {
    return static_cast<std::int32_t>(lanes_.threads[at(rank)].size()) + 1;
  }
  TraceEventStream& event(char phase, std::int32_t rank) { return events_.event(phase, others_.processes + rank); }
  TraceEventStream& metadata_event(std::int32_t pid, std::int32_t tid, std::string_view what) {
    event('M', pid);
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
    event('X', pid).text(",\"tid\":").number(tid);
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
    if (operation.micro_batch.valid()) events_.text(",\"micro_batch\":").number(operation.micro_batch.value);
    if (transfer) write_transfer(operation);
    const Nanos slowdown = std::max(Nanos{}, span.end - span.start - operation.alone);
    events_.text(",\"issued_us\":").micros(span.issued - origin_);
    events_.text(",\"ready_us\":").micros(span.ready - origin_);
    events_.text(",\"alone_us\":").micros(operation.alone);
    events_.text(",\"slowdown_us\":").micros(slowdown).text("}}");
  }

  // Uses the words of PyTorch's profiler where it has them. Spans of one iteration with the same number are members of
  // one transfer; the other members of a transfer without a number are on ranks that the file does not show.
  void write_transfer(const TimelineOperation& operation) {
    if (operation.collective >= 0) events_.text(",\"Collective name\":").text(name(operation.collective));
    if (operation.group >= 0) events_.text(",\"group\":").text(name(operation.group));
    if (operation.group_size > 0) events_.text(",\"Group size\":").number(operation.group_size);
    events_.text(",\"bytes\":").number(operation.bytes.value);
    if (operation.transfer >= 0) events_.text(",\"transfer\":").number(operation.transfer);
  }

  void write_exposed() {
    std::vector<std::vector<ExposedStretch>> by_rank(timeline_.ranks.size());
    for (ExposedStretch stretch : accounting_.exposed) {
      if (stretch.rank < 0 || at(stretch.rank) >= by_rank.size()) {
        fail("chrome trace: an exposed stretch of rank {}, the timeline has {}", stretch.rank, by_rank.size());
      }
      stretch.begin = std::max(stretch.begin, begin_);
      stretch.end = std::min(stretch.end, end_);
      if (stretch.begin < stretch.end && excerpts_.shows(stretch.begin)) by_rank[at(stretch.rank)].push_back(stretch);
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
    EnumArray<TrafficKind, bool, kTrafficKinds> occurs{};
    for (const ExposedStretch& stretch : stretches) occurs[stretch.kind] = true;
    const auto level = [&](Nanos when, int active) {
      counter(rank, "exposed", when);
      const char* separator = "";
      for (int kind = 0; kind < kTrafficKinds; ++kind) {
        if (!occurs[kind]) continue;
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
    event('C', rank).text(",\"ts\":").micros(when - origin_);
    return events_.text(",\"name\":\"").text(what).text("\",\"args\":{");
  }

  // Leaves out changes too small to see: a counter for every buffer would be a third of the file.
  void write_memory() {
    for (std::int32_t rank = 0; at(rank) < timeline_.memory.size(); ++rank) {
      const auto& samples = timeline_.memory[at(rank)];
      std::int64_t peak = 0, written = -1;
      for (const MemorySample& sample : samples) peak = std::max(peak, sample.bytes.value);
      for (std::size_t i = 0; i < samples.size(); ++i) {
        // The last sample before the written time says how much there is at its begin.
        const bool last_before = samples[i].at < begin_ && (i + 1 == samples.size() || samples[i + 1].at > begin_);
        if (!last_before && (samples[i].at < begin_ || samples[i].at > end_ || !excerpts_.shows(samples[i].at)))
          continue;
        const std::int64_t bytes = samples[i].bytes.value;
        const bool seen = written < 0 || std::abs(bytes - written) >= peak / 512 || bytes == peak;
        if (!seen && !last_before && i + 1 < samples.size()) continue;
        written = bytes;
        counter(rank, "memory", std::max(samples[i].at, begin_)).text("\"bytes\":");
        events_.number(samples[i].bytes.value).text("}}");
      }
    }
  }

  void write_arrows() {
    const auto rank_of = [&](std::int32_t span) {
      return timeline_.operations[at(timeline_.spans[at(span)].operation)].rank;
    };
    for (const TraceArrow& arrow : trace_arrows(timeline_, lanes_, options_.max_flows)) {
      flow_point('s', rank_of(arrow.from), lanes_.tid[at(arrow.from)], arrow.leaves).text("}");
      flow_point('f', rank_of(arrow.to), lanes_.tid[at(arrow.to)], arrow.arrives).text(",\"bp\":\"e\"}");
      ++arrows_;
    }
  }
  TraceEventStream& flow_point(char phase, std::int32_t pid, std::int32_t tid, Nanos when) {
    event(phase, pid).text(",\"tid\":").number(tid).text(",\"ts\":").micros(when - origin_);
    return events_.text(",\"cat\":\"dependency\",\"name\":\"waits for\",\"id\":").number(others_.arrows + arrows_);
  }

  const Timeline& timeline_;
  const Accounting& accounting_;
  const TraceOptions& options_;
  Neighbours others_;
  TraceEventStream& events_;
  TraceLanes lanes_;
  TraceExcerpts excerpts_;
  std::vector<std::string> names_;  // quoted
  Nanos begin_, end_;               // what the written spans cover
  Nanos origin_;                    // written as time 0
  std::int64_t arrows_ = 0;
};

// The timeline without folded spans, of the iterations asked for; itself where nothing is folded.
const Timeline& plain_timeline(const Timeline& timeline, const TraceOptions& options, Timeline& storage) {
  check_timeline(timeline);
  if (timeline.folded.empty()) return timeline;
  // What a written span waited for may have run one iteration earlier.
  const std::int32_t first = std::max(options.first_iteration, std::numeric_limits<std::int32_t>::min() + 1) - 1;
  storage = expanded(timeline, first, options.last_iteration);
  if (storage.spans.empty()) fail_without_spans(options);
  return storage;
}

void close_file(TraceEventStream& events) {
  events.text("\n]}\n");
  events.flush();
}

}  // namespace

std::int64_t write_chrome_trace(std::ostream& out, const Timeline& timeline, const Accounting& accounting,
                                const TraceOptions& options) {
  Timeline storage;
  const Timeline& plain = plain_timeline(timeline, options, storage);
  TraceEventStream events(out);
  TraceWriter writer(events, plain, accounting, options);
  writer.write_head();
  writer.write_events();
  close_file(events);
  return writer.left_out();
}

void write_chrome_traces(std::ostream& out, const std::vector<TracePart>& parts, const TraceOptions& options) {
  TraceEventStream events(out);
  std::string labels;
  for (const TracePart& part : parts) labels += fmt::format("{}{}", labels.empty() ? "" : " and ", part.label);
  events.text(fmt::format("{{\"displayTimeUnit\":\"ms\",\"otherData\":{{\"timeline\":{}", json_quoted(labels)));
  write_words(events, options.metadata);
  events.text("},\"traceEvents\":[");
  Neighbours others;
  others.from_zero = true;
  for (const TracePart& part : parts) {
    TraceOptions own = options;
    own.first_iteration = part.first_iteration;
    own.last_iteration = part.last_iteration;
    own.max_spans = std::numeric_limits<std::int64_t>::max();
    others.label = part.label;
    Timeline storage;
    const Timeline& plain = plain_timeline(*part.timeline, own, storage);
    TraceWriter writer(events, plain, *part.accounting, own, others);
    writer.write_events();
    others = writer.others();
  }
  close_file(events);
}

}  // namespace weft
