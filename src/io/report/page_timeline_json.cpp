// Writes a column at a time. Numbers that grow are written as differences to the one before, which compress well.
#include <fmt/format.h>

#include <ostream>

#include "io/report/page_timeline.hpp"
#include "io/trace/chrome_trace_events.hpp"

namespace weft {
namespace {

class ColumnWriter {
 public:
  ColumnWriter(std::ostream& out, const PageTimeline& page) : out_(out), page_(page), t_(page.timeline) {}

  void write() {
    head();
    names();
    ranks();
    operations();
    waits();
    spans();
    exposed();
    path();
    memory();
    out_ << "}\n";
  }

 private:
  // `number` is called with 0 .. count - 1.
  template <class Number>
  void column(const char* name, std::size_t count, Number number) {
    buffer_ = fmt::format("{}\"{}\":[", first_column_ ? "" : ",", name);
    first_column_ = false;
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) buffer_ += ',';
      fmt::format_to(std::back_inserter(buffer_), "{}", number(i));
    }
    out_ << buffer_ << "]";
  }
  template <class Number>
  void differences(const char* name, std::size_t count, Number number) {
    std::int64_t before = 0;
    column(name, count, [&](std::size_t i) {
      const std::int64_t own = number(i), difference = own - before;
      before = own;
      return difference;
    });
  }
  void open(const char* table) {
    out_ << ",\n\"" << table << "\":{";
    first_column_ = true;
  }
  void close() { out_ << "}"; }
  std::int64_t since_begin(Nanos t) const { return (t - page_.begin).value; }

  void head() {
    out_ << fmt::format(
        "{{\"title\":{},\"policy\":{},\"measured\":{},\"begin\":{},\"length\":{},\"whole_length\":{},\"period\":{},"
        "\"left_out\":{}",
        json_quoted(page_.title), json_quoted(page_.policy), t_.measured, page_.begin.value, since_begin(page_.end),
        since_begin(page_.whole_end), t_.period_ns, page_.left_out);
  }
  void names() {
    out_ << ",\n\"names\":[";
    for (std::size_t i = 0; i < t_.names.size(); ++i) out_ << (i > 0 ? "," : "") << json_quoted(t_.names[i]);
    out_ << "]";
  }
  void ranks() {
    out_ << ",\n\"ranks\":[";
    for (std::size_t i = 0; i < t_.ranks.size(); ++i) {
      const TimelineRank& rank = t_.ranks[i];
      out_ << (i > 0 ? "," : "")
           << fmt::format("{{\"name\":{},\"rank\":{},\"ranks\":{},\"queues\":[", json_quoted(rank.name),
                          rank.rank.value, rank.ranks);
      for (std::size_t q = 0; q < rank.queues.size(); ++q) {
        out_ << (q > 0 ? "," : "") << json_quoted(rank.queues[make_id<QueueId>(q)]);
      }
      out_ << "]}";
    }
    out_ << "]";
  }
  void operations() {
    const auto of = [&](auto member) { return [this, member](std::size_t i) { return member(t_.operations[i]); }; };
    const std::size_t count = t_.operations.size();
    using Operation = TimelineOperation;
    open("operations");
    differences("name", count, of([](const Operation& o) { return o.name; }));
    column("phase", count, of([](const Operation& o) { return o.phase; }));
    column("rank", count, of([](const Operation& o) { return o.rank; }));
    column("queue", count, of([](const Operation& o) { return o.queue.value; }));
    column("micro_batch", count, of([](const Operation& o) { return o.micro_batch.value; }));
    column("traffic", count,
           of([](const Operation& o) { return o.activity == Activity::transfer ? static_cast<int>(o.traffic) : -1; }));
    column("alone", count, of([](const Operation& o) { return o.alone.value; }));
    column("bytes", count, of([](const Operation& o) { return o.bytes.value; }));
    column("collective", count, of([](const Operation& o) { return o.collective; }));
    column("group", count, of([](const Operation& o) { return o.group; }));
    column("group_size", count, of([](const Operation& o) { return o.group_size; }));
    differences("transfer", count, of([](const Operation& o) { return o.transfer; }));
    close();
  }
  void waits() {
    if (t_.dependency_begin.empty()) return;
    open("waits");
    column("count", t_.operations.size(),
           [&](std::size_t i) { return t_.dependency_begin[i + 1] - t_.dependency_begin[i]; });
    std::size_t waiting = 0;
    column("back", t_.dependencies.size(), [&](std::size_t d) {
      while (static_cast<std::size_t>(t_.dependency_begin[waiting + 1]) <= d) ++waiting;
      return static_cast<std::int64_t>(waiting) - t_.dependencies[d].operation;
    });
    column("distance", t_.dependencies.size(), [&](std::size_t d) { return t_.dependencies[d].distance; });
    column("kind", t_.dependencies.size(), [&](std::size_t d) {
      return t_.dependencies[d].memory ? 2 : t_.dependencies[d].order ? 1 : 0;
    });
    close();
  }
  void spans() {
    const std::vector<Span>& s = t_.spans;
    open("spans");
    differences("operation", s.size(), [&](std::size_t i) { return s[i].operation; });
    differences("iteration", s.size(), [&](std::size_t i) { return s[i].iteration; });
    differences("start", s.size(), [&](std::size_t i) { return since_begin(s[i].start); });
    column("length", s.size(), [&](std::size_t i) { return (s[i].end - s[i].start).value; });
    column("issued", s.size(), [&](std::size_t i) { return (s[i].start - s[i].issued).value; });
    column("ready", s.size(), [&](std::size_t i) { return (s[i].start - s[i].ready).value; });
    close();
  }
  void exposed() {
    const std::vector<ExposedStretch>& e = page_.exposed;
    open("exposed");
    column("rank", e.size(), [&](std::size_t i) { return e[i].rank; });
    column("traffic", e.size(), [&](std::size_t i) { return static_cast<int>(e[i].kind); });
    differences("begin", e.size(), [&](std::size_t i) { return since_begin(e[i].begin); });
    column("length", e.size(), [&](std::size_t i) { return (e[i].end - e[i].begin).value; });
    close();
  }
  void path() {
    const std::vector<CriticalStep>& p = page_.path;
    open("path");
    differences("operation", p.size(), [&](std::size_t i) { return p[i].operation; });
    differences("iteration", p.size(), [&](std::size_t i) { return p[i].iteration; });
    differences("begin", p.size(), [&](std::size_t i) { return since_begin(p[i].begin); });
    column("length", p.size(), [&](std::size_t i) { return (p[i].end - p[i].begin).value; });
    close();
  }
  void memory() {
    out_ << ",\n\"memory\":[";
    for (std::size_t r = 0; r < t_.memory.size(); ++r) {
      const std::vector<MemorySample>& m = t_.memory[r];
      out_ << (r > 0 ? "," : "") << "{";
      first_column_ = true;
      differences("at", m.size(), [&](std::size_t i) { return since_begin(m[i].at); });
      differences("bytes", m.size(), [&](std::size_t i) { return m[i].bytes.value; });
      out_ << "}";
    }
    out_ << "]";
  }

  std::ostream& out_;
  const PageTimeline& page_;
  const Timeline& t_;
  std::string buffer_;
  bool first_column_ = true;
};

}  // namespace

void write_page_timeline(std::ostream& out, const PageTimeline& page) {
  ColumnWriter(out, page).write();
}

}  // namespace weft
