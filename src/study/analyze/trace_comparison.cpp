#include "study/analyze/trace_comparison.hpp"

#include <algorithm>

namespace weft {
namespace {

// Of the ranks with that label, or of all.
TraceTotals totals_of(const WhyReport& report, std::optional<std::string_view> label) {
  std::vector<TotalsInput> inputs;
  for (const LabelledStudy& labelled : report.labels) {
    if (label && labelled.label != *label) continue;
    for (const RankStudy& rank : labelled.study.ranks) inputs.push_back(rank.totals_input());
  }
  return total_operations(inputs);
}

bool has_label(const WhyReport& report, std::string_view label) {
  return std::any_of(report.labels.begin(), report.labels.end(),
                     [&](const LabelledStudy& labelled) { return labelled.label == label; });
}

}  // namespace

TraceComparison compare_reports(const WhyReport& before, const WhyReport& after) {
  // A run's trace has its prediction beside it: like is compared with like, and otherwise what was measured.
  std::optional<std::string_view> common;
  for (const std::string_view label : {"predicted", "measured"}) {
    if (has_label(before, label) && has_label(after, label)) common = label;
  }
  const auto of = [&](const WhyReport& report) {
    if (common || !has_label(report, "measured")) return common;
    return std::optional<std::string_view>("measured");
  };
  TraceComparison comparison{"before", "after", totals_of(before, of(before)), totals_of(after, of(after)), {}};
  comparison.changes = compare_totals(comparison.before, comparison.after);
  return comparison;
}

std::optional<TraceComparison> compare_labels(const WhyReport& report) {
  const auto find = [&](std::string_view label) {
    return std::find_if(report.labels.begin(), report.labels.end(),
                        [&](const LabelledStudy& labelled) { return labelled.label == label; });
  };
  const auto predicted = find("predicted"), measured = find("measured");
  if (predicted == report.labels.end() || measured == report.labels.end()) return {};
  TraceComparison comparison{
      "predicted", "measured", total_operations(predicted->study), total_operations(measured->study), {}};
  comparison.changes = compare_totals(comparison.before, comparison.after);
  return comparison;
}

}  // namespace weft
