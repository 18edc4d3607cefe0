#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "app/analyze/analyze_sections.hpp"
#include "app/analyze/kernel_names.hpp"
#include "app/terminal.hpp"
#include "base/table.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxRows = 20;

std::string time_text(double s) {
  return s == 0 ? "0" : format_time(nanos_from_seconds(s));
}
std::string difference_text(double s) {
  if (s == 0) return "0";
  return fmt::format("{}{}", s < 0 ? "-" : "+", format_time(nanos_from_seconds(std::abs(s))));
}
std::string percent_text(double before, double after) {
  return before > 0 ? fmt::format("{:+.1f} %", 100 * (after / before - 1)) : "-";
}
double micros(double s) {
  return s * 1e6;
}

ordered_json side_json(const TraceTotals& totals) {
  return {{"ranks", totals.ranks},
          {"steps", totals.steps},
          {"span_us", micros(totals.span_s)},
          {"computation_us", micros(totals.computation_s)},
          {"communication_us", micros(totals.communication_s)},
          {"exposed_us", micros(totals.exposed_s)}};
}
ordered_json total_json(const OperationTotal& total) {
  return {{"count", total.count}, {"time_us", micros(total.time_s)}, {"exposed_us", micros(total.exposed_s)}};
}

// Of as many as are printed.
std::vector<std::string> shown_names(const std::vector<const OperationChange*>& rows, std::size_t width) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < rows.size() && i < kMaxRows; ++i) names.push_back(rows[i]->name);
  return column_names(names, width);
}

void print_list(const TraceComparison& comparison, ChangeKind kind, std::string_view title, std::ostream& out) {
  std::vector<const OperationChange*> rows;
  for (const OperationChange& change : comparison.changes) {
    if (change.change == kind) rows.push_back(&change);
  }
  if (rows.empty()) return;
  out << fmt::format("\n{}: {}\n", title, rows.size());
  const std::vector<std::string> names = shown_names(rows, 72);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const OperationTotal& total = kind == ChangeKind::appeared ? rows[i]->after : rows[i]->before;
    out << fmt::format("  {:>10}  {:>8.6g} x  {}\n", time_text(total.time_s), total.count, names[i]);
  }
  if (rows.size() > kMaxRows) out << fmt::format("  {} more with --json\n", rows.size() - kMaxRows);
}

}  // namespace

void print_comparison(const TraceComparison& comparison, std::ostream& out) {
  const TraceTotals &before = comparison.before, &after = comparison.after;
  out << fmt::format("Comparison: means over ranks, per step ({} rank{} before, {} after)\n\n", before.ranks,
                     before.ranks == 1 ? "" : "s", after.ranks);
  TextTable sums({"", comparison.before_name, comparison.after_name, "difference", ""});
  const auto add = [&](const char* name, double a, double b) {
    sums.add_row({name, time_text(a), time_text(b), difference_text(b - a), percent_text(a, b)});
  };
  add("first start to last end", before.span_s, after.span_s);
  add("computation", before.computation_s, after.computation_s);
  add("communication", before.communication_s, after.communication_s);
  add("exposed communication", before.exposed_s, after.exposed_s);
  out << sums.to_string(columns_of(out));

  out << "\nWhat changed most\n";
  TextTable table({"operation", "calls", "", "time", "", "difference", "exposed"});
  std::vector<const OperationChange*> rows;
  for (const OperationChange& change : comparison.changes) {
    if (change.change == ChangeKind::changed) rows.push_back(&change);
  }
  const std::vector<std::string> names = shown_names(rows, 40);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const OperationChange& change = *rows[i];
    table.add_row(
        {names[i], fmt::format("{:.6g}", change.before.count), fmt::format("{:.6g}", change.after.count),
         time_text(change.before.time_s), time_text(change.after.time_s), difference_text(change.difference_s()),
         change.kind == KernelKind::communication ? difference_text(change.after.exposed_s - change.before.exposed_s)
                                                  : "-"});
  }
  out << (rows.empty() ? "nothing\n" : table.to_string(columns_of(out)));
  if (rows.size() > kMaxRows) out << fmt::format("{} more with --json\n", rows.size() - kMaxRows);
  print_list(comparison, ChangeKind::appeared, "Appeared", out);
  print_list(comparison, ChangeKind::vanished, "Vanished", out);
}

void add_comparison_json(const TraceComparison& comparison, ordered_json& json) {
  ordered_json& out = json["comparison"];
  out[comparison.before_name] = side_json(comparison.before);
  out[comparison.after_name] = side_json(comparison.after);
  out["operations"] = ordered_json::array();
  for (const OperationChange& change : comparison.changes) {
    out["operations"].push_back({{"kind", name_of(change.kind)},
                                 {"name", change.name},
                                 {"change", name_of(change.change)},
                                 {comparison.before_name, total_json(change.before)},
                                 {comparison.after_name, total_json(change.after)},
                                 {"difference_us", micros(change.difference_s())}});
  }
}

}  // namespace weft
