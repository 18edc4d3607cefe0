// Writes a line at a time, so that a timeline of a million spans is in memory only once.
#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <ostream>
#include <utility>

#include "base/error.hpp"
#include "io/timeline_json.hpp"
#include "io/trace/chrome_trace_events.hpp"
#include "timeline/folded_spans.hpp"

namespace weft {
namespace {

class TimelineWriter {
 public:
  TimelineWriter(std::ostream& out, const Timeline& timeline) : out_(out), t_(timeline) {}

  void write(const std::map<std::string, std::string>& about) {
    put("{{\"weft_timeline\":1,\"timeline\":\"{}\"", t_.measured ? "measured" : "predicted");
    if (!about.empty()) {
      put(",\n\"about\":{{");
      const char* separator = "";
      for (const auto& [key, value] : about) {
        put("{}{}:{}", separator, json_quoted(key), json_quoted(value));
        separator = ",";
      }
      put("}}");
    }
    put(",\n\"steady\":{{\"first\":{},\"begin\":{},\"period\":{},\"periods\":{}}}", t_.steady_first,
        t_.steady_begin.value, t_.period_ns, t_.periods);
    if (t_.dependency_begin.empty()) put(",\n\"dependencies\":false");
    lines("names", t_.names.size(), [&](std::size_t i) { put("{}", json_quoted(t_.names[i])); });
    lines("ranks", t_.ranks.size(), [&](std::size_t i) { rank(t_.ranks[i]); });
    lines("operations", t_.operations.size(), [&](std::size_t i) { operation(i); });
    lines("spans", t_.spans.size(), [&](std::size_t i) { span(t_.spans[i]); });
    if (!t_.memory.empty()) lines("memory", t_.memory.size(), [&](std::size_t i) { memory(t_.memory[i]); });
    put("}}\n");
    flush();
    out_.flush();
  }

 private:
  template <class... Arguments>
  void put(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    fmt::format_to(std::back_inserter(buffer_), format, std::forward<Arguments>(arguments)...);
  }
  void flush() {
    out_.write(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    buffer_.clear();
  }
  template <class Item>
  void lines(const char* key, std::size_t count, Item item) {
    put(",\n\"{}\":[", key);
    for (std::size_t i = 0; i < count; ++i) {
      put("{}", i == 0 ? "\n" : ",\n");
      item(i);
      if (buffer_.size() > (std::size_t{1} << 16)) flush();
    }
    put("]");
  }

  void rank(const TimelineRank& rank) {
    put("{{\"name\":{},\"rank\":{},\"ranks\":{},\"queues\":[", json_quoted(rank.name), rank.rank.value, rank.ranks);
    const char* separator = "";
    for (const std::string& queue : rank.queues) {
      put("{}{}", separator, json_quoted(queue));
      separator = ",";
    }
    put("]}}");
  }

  void operation(std::size_t id) {
    const TimelineOperation& op = t_.operations[id];
    put("{{\"name\":{},\"phase\":{},\"rank\":{},\"queue\":{}", op.name, op.phase, op.rank, op.queue.value);
    if (op.micro_batch.valid()) put(",\"micro_batch\":{}", op.micro_batch.value);
    put(",\"alone\":{}", op.alone.value);
    if (op.activity == Activity::transfer) {
      put(",\"traffic\":\"{}\",\"bytes\":{}", name_of(op.traffic), op.bytes.value);
      if (op.collective >= 0) put(",\"collective\":{}", op.collective);
      if (op.group >= 0) put(",\"group\":{}", op.group);
      if (op.group_size > 0) put(",\"group_size\":{}", op.group_size);
      if (op.transfer >= 0) put(",\"transfer\":{}", op.transfer);
      if (op.receives) put(",\"receives\":true");
    }
    if (!t_.dependency_begin.empty()) waits(id);
    put("}}");
  }
  void waits(std::size_t id) {
    const std::size_t first = t_.dependency_begin[id];
    const std::size_t last = t_.dependency_begin[id + 1];
    if (first == last) return;
    put(",\"waits\":[");
    for (std::size_t i = first; i < last; ++i) {
      const Dependency& d = t_.dependencies[i];
      put("{}[{},{},{}]", i == first ? "" : ",", d.operation, d.distance, d.order ? 1 : d.memory ? 2 : 0);
    }
    put("]");
  }

  void span(const Span& s) {
    put("[{},{},{},{},{},{}]", s.operation, s.iteration, s.issued.value, s.ready.value, s.start.value, s.end.value);
  }
  void memory(const std::vector<MemorySample>& samples) {
    put("[");
    const char* separator = "";
    for (const MemorySample& sample : samples) {
      put("{}[{},{}]", separator, sample.at.value, sample.bytes.value);
      separator = ",";
    }
    put("]");
  }

  std::ostream& out_;
  const Timeline& t_;
  fmt::memory_buffer buffer_;
};

}  // namespace

void write_timeline_json(std::ostream& out, const TimelineFile& file) {
  check_timeline(file.timeline);
  if (!std::isfinite(file.timeline.period_ns))
    fail("timeline: a period of {} ns cannot be written", file.timeline.period_ns);
  if (file.timeline.folded.empty()) {
    TimelineWriter(out, file.timeline).write(file.about);
  } else {
    TimelineWriter(out, expanded(file.timeline)).write(file.about);
  }
}

}  // namespace weft
