// The tables of the second section; they fit a terminal of 100 columns.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "app/analyze/analyze_sections.hpp"
#include "app/analyze/kernel_names.hpp"
#include "app/terminal.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "timeline/trace/path_entries.hpp"

namespace weft {
namespace {

constexpr std::size_t kMaxRows = 12, kMaxRanks = 32, kMaxNames = 3, kMaxEntries = 10;

constexpr std::array<std::string_view, kExposedReasons> kReasonWords = {
    "another rank had not begun the collective",
    "no computation came after it",
    "the host waited for the device before the next launch",
    "the host had not launched the next computation",
    "computation queued behind communication on one stream",
    "it or the next computation queued behind others on a stream",
    "the next computation waited for it",
    "the next computation was launched; why it waited is unknown",
    "the next computation waited for another transfer or stage"};

constexpr std::array<std::string_view, kPathKinds> kPathWords = {"computation",    "communication",  "memory copies",
                                                                 "launch delay",   "gaps on device", "host",
                                                                 "host waking up", "unknown"};

std::string time_text(Nanos t) {
  return t.value == 0 ? "0" : format_time(t);
}
std::string percent_of(Nanos part, Nanos whole) {
  if (whole.value <= 0) return "-";
  return fmt::format("{:.1f} %", 100.0 * static_cast<double>(part.value) / static_cast<double>(whole.value));
}
Nanos per(Nanos t, std::int64_t n) {
  return Nanos{t.value / std::max<std::int64_t>(n, 1)};
}
std::string rate_text(double bytes_per_s) {
  return bytes_per_s > 0 ? fmt::format("{:.2f}", bytes_per_s / 1e9) : "-";
}
// What links carry for a buffer depends on how many ranks there are.
std::string bus_text(const ExposureRow& row, double bytes_per_s) {
  return row.ranks > 0 ? rate_text(bytes_per_s) : "-";
}

// All ranks of one label, added up.
struct Totals {
  ExposureTable table;
  Nanos exposed, communication;
  std::int64_t ranks = 0, steps = 0;
};

Totals add_up(const LabelledStudy& labelled) {
  Totals totals;
  totals.ranks = static_cast<std::int64_t>(labelled.traces.size());
  for (const RankStudy& rank : labelled.study.ranks) {
    add_table(totals.table, rank.table);
    totals.exposed += rank.exposed.total();
    totals.communication += rank.exposed.communication.total();
    totals.steps = std::max(totals.steps, rank.steps);
  }
  return totals;
}

void print_table(const WhyReport& report, const LabelledStudy& labelled, const Totals& totals, std::ostream& out) {
  TextTable table({"collective", "group", "size", "calls", "time", "exposed", "GB/s", "bus GB/s", "of link"});
  std::size_t rows = 0;
  for (const auto* entry : by_exposed_time(totals.table)) {
    if (rows++ == kMaxRows) break;
    const auto& [key, row] = *entry;
    std::string of_link = "-";
    const auto link = link_of(report, *labelled.study.ranks.front().trace, row.ranks);
    if (link && row.sized > 0 && row.ranks > 0)
      of_link = fmt::format("{:.1f} %", 100 * row.bus_bytes_per_s() / link->bytes_per_second);
    table.add_row({key.collective.substr(0, 14), key.group.substr(0, 12), std::string(size_class_name(key.size)),
                   fmt::format("{:.6g}", static_cast<double>(row.count) / static_cast<double>(totals.ranks)),
                   time_text(per(row.time, totals.ranks)), time_text(per(row.exposed, totals.ranks)),
                   rate_text(row.algorithm_bytes_per_s()), bus_text(row, row.bus_bytes_per_s()), of_link});
  }
  out << table.to_string(columns_of(out));
  if (totals.table.size() > kMaxRows) out << fmt::format("{} more with --json\n", totals.table.size() - kMaxRows);
}

void print_reasons(const Totals& totals, std::ostream& out) {
  std::array<Nanos, kExposedReasons> reasons{};
  for (const auto& [key, row] : totals.table) {
    for (std::size_t i = 0; i < reasons.size(); ++i) reasons[i] += row.reasons[i];
  }
  std::vector<std::size_t> order(reasons.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return reasons[a] > reasons[b]; });
  out << "\nWhy it was exposed\n";
  for (const std::size_t i : order) {
    if (reasons[i].value == 0) continue;
    out << fmt::format("{:>9}  {:>10}  {:<13} {}\n", percent_of(reasons[i], totals.exposed),
                       time_text(per(reasons[i], totals.ranks)), name_of(static_cast<ExposedReason>(i)),
                       kReasonWords[i]);
  }
}

void print_hiding_places(const Totals& totals, std::ostream& out) {
  bool any = false;
  std::size_t rows = 0;
  for (const auto* entry : by_exposed_time(totals.table)) {
    const auto& [key, row] = *entry;
    if (row.exposed.value == 0 || rows++ == kMaxNames) break;
    std::vector<std::pair<Nanos, std::string>> beside;
    for (const auto& [name, time] : row.beside) beside.emplace_back(time, name);
    std::stable_sort(beside.begin(), beside.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    if (!any) out << "\nWhat could have run beside it in the same step, streams and waits as they are\n";
    any = true;
    out << fmt::format("  {} over {}: {} of {} exposed", key.collective, key.group,
                       percent_of(row.possible, row.exposed), time_text(per(row.exposed, totals.ranks)));
    out << (beside.empty() ? "; nothing was free of it\n" : "\n");
    if (beside.size() > kMaxNames) beside.resize(kMaxNames);
    std::vector<std::string> names;
    for (const auto& [time, name] : beside) names.push_back(name);
    names = column_names(names, 80);
    for (std::size_t i = 0; i < beside.size(); ++i) {
      out << fmt::format("    {:>10}  {}\n", time_text(per(beside[i].first, totals.ranks)), names[i]);
    }
  }
}

void print_bound(const LabelledStudy& labelled, std::ostream& out) {
  out << "\nWhat perfect overlap within each step would save at most\n";
  TextTable table({"rank", "time", "exposed", "same order", "", "any order", "", "waits"});
  std::size_t rows = 0;
  for (const RankStudy& rank : labelled.study.ranks) {
    if (rows++ == kMaxRanks) break;
    table.add_row({fmt::format("{}", rank.trace->rank.value), time_text(rank.span), time_text(rank.bound.exposed),
                   time_text(rank.bound.gain_same_order), percent_of(rank.bound.gain_same_order, rank.span),
                   time_text(rank.bound.gain_any_order), percent_of(rank.bound.gain_any_order, rank.span),
                   std::string(name_of(rank.order.source))});
  }
  out << table.to_string(columns_of(out));
}

void print_ranks(const LabelledStudy& labelled, std::ostream& out) {
  const TraceStudy& study = labelled.study;
  if (study.ranks.size() < 2) {
    if (study.ranks.front().trace->source == TraceSource::weft) return;  // it stands for all of its peers
    out << "\nOne rank: whether it waited for a late peer cannot be told; give the traces of its peers too.\n";
    return;
  }
  out << fmt::format("\nRanks: {} collectives matched, {} without a counterpart\n", study.match.collectives(),
                     study.match.unmatched);
  TextTable table({"rank", "came last", "others waited", "waited for others", "clock moved by"});
  std::vector<std::size_t> order(study.ranks.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (order.size() > kMaxRanks) {
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return study.ranks[a].lateness.caused > study.ranks[b].lateness.caused;
    });
    order.resize(kMaxRanks);
  }
  for (const std::size_t r : order) {
    const RankLateness& late = study.ranks[r].lateness;
    const Nanos moved = study.match.offset[r];
    table.add_row({fmt::format("{}", study.ranks[r].trace->rank.value),
                   fmt::format("{} of {}", late.last, study.match.collectives()), time_text(late.caused),
                   time_text(late.waited),
                   !study.match.aligned[r] ? "unknown"
                   : moved.value < 0       ? fmt::format("-{}", format_time(Nanos{-moved.value}))
                                           : time_text(moved)});
  }
  out << table.to_string(columns_of(out));
  for (const std::string& remark : study.match.remarks) out << remark << "\n";
}

// Our own traces show whole iterations, and one may begin before the last has ended on all ranks.
std::string overlapping_steps(const LabelledStudy& labelled, Nanos path) {
  const RankStudy& rank = labelled.study.ranks.front();
  const double steps = seconds(rank.trace->step_time) * static_cast<double>(std::max<std::int64_t>(rank.steps, 1));
  if (!(steps > 0) || seconds(path) <= steps) return "";
  return fmt::format(" from the first start to the last end; steps overlap, one takes {}",
                     time_text(rank.trace->step_time));
}

void print_path(const LabelledStudy& labelled, std::optional<std::int64_t> step, std::ostream& out) {
  const std::vector<PathSegment>& path = labelled.study.path;
  if (path.empty()) return;
  const Nanos whole = path.back().end - path.front().begin;
  out << fmt::format("\nCritical path{}: {}{}\n", step ? fmt::format(" of step {}", *step) : "", time_text(whole),
                     overlapping_steps(labelled, whole));
  const EnumArray<PathKind, Nanos, kPathKinds> times = path_time_by_kind(path);
  std::vector<std::size_t> kinds(times.size());
  for (std::size_t i = 0; i < kinds.size(); ++i) kinds[i] = i;
  std::stable_sort(kinds.begin(), kinds.end(), [&](std::size_t a, std::size_t b) { return times[a] > times[b]; });
  for (const std::size_t i : kinds) {
    if (times[i].value == 0) continue;
    out << fmt::format("{:>9}  {:>10}  {}\n", percent_of(times[i], whole), time_text(times[i]), kPathWords[i]);
  }
  std::vector<PathEntry> entries = path_entries(labelled.study);
  if (entries.size() > kMaxEntries) entries.resize(kMaxEntries);
  std::vector<std::string> names;
  for (const PathEntry& entry : entries) names.push_back(entry.name);
  names = column_names(names, 48);
  out << "  longest entries\n";
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const PathEntry& entry = entries[i];
    out << fmt::format(
        "{:>9}  {:>10}  {:>6} x  {}\n", percent_of(entry.time, whole), time_text(entry.time), entry.count,
        entry.name.empty() ? std::string(entry.kind == PathKind::host ? "host: between operators" : name_of(entry.kind))
                           : fmt::format("{}: {}", name_of(entry.kind), names[i]));
  }
}

}  // namespace

void print_why(const WhyReport& report, std::ostream& out) {
  const char* separator = "";
  for (const LabelledStudy& labelled : report.labels) {
    out << separator;
    separator = "\n";
    const Totals totals = add_up(labelled);
    out << (labelled.label.empty() ? "Communication" : fmt::format("Communication, {}", labelled.label));
    if (totals.table.empty()) {
      out << ": there is none\n";
    } else {
      out << fmt::format(": mean over {} rank{}, {}\n\n", totals.ranks, totals.ranks == 1 ? "" : "s",
                         totals.steps > 1 ? fmt::format("all {} steps", totals.steps) : "1 step");
      print_table(report, labelled, totals, out);
      out << fmt::format("\nexposed: {} of {} ({})\n", time_text(per(totals.exposed, totals.ranks)),
                         time_text(per(totals.communication, totals.ranks)),
                         percent_of(totals.exposed, totals.communication));
      print_reasons(totals, out);
      print_hiding_places(totals, out);
      print_bound(labelled, out);
      print_ranks(labelled, out);
    }
    print_path(labelled, report.options.step, out);
  }
}

}  // namespace weft
