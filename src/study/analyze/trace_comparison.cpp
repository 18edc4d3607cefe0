#include "study/analyze/trace_comparison.hpp"

#include <algorithm>

namespace weft {
namespace {

TraceTotals totals_of(const WhyReport& report) {
  std::vector<TotalsInput> inputs;
  for (const LabelledStudy& labelled : report.labels) {
    for (const RankStudy& rank : labelled.study.ranks) inputs.push_back(rank.totals_input());
  }
  return total_operations(inputs);
}

}  // namespace

TraceComparison compare_reports(const WhyReport& before, const WhyReport& after) {
  TraceComparison comparison{"before", "after", totals_of(before), totals_of(after), {}};
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
