#include "timeline/compare.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "timeline/folded_spans.hpp"

namespace weft {
namespace {

std::size_t at(std::int32_t index) {
  return index;
}

bool is_digit(char c) {
  return '0' <= c && c <= '9';
}

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_digit);
}

// Compute and transfers of the same name are kept apart.
using Kind = std::pair<std::string, Activity>;
using Kinds = std::map<Kind, KindTimes>;

// By operation.
std::vector<Kind> kinds_of(const Timeline& timeline) {
  std::vector<Kind> kinds;
  kinds.reserve(timeline.operations.size());
  for (std::size_t i = 0; i < timeline.operations.size(); ++i) {
    const TimelineOperation& operation = timeline.operations[i];
    if (operation.name < 0 || at(operation.name) >= timeline.names.size()) {
      fail("timeline: operation {}: name {} is not in 0..{}", i, operation.name,
           static_cast<std::int64_t>(timeline.names.size()) - 1);
    }
    kinds.emplace_back(kind_of_operation(timeline.names[at(operation.name)]), operation.activity);
  }
  return kinds;
}

// The iterations that the steady window begins with.
Kinds steady_kinds(const Timeline& timeline) {
  const std::vector<Kind> kinds = kinds_of(timeline);
  struct Sum {
    double executions = 0, seconds = 0;
  };
  std::map<Kind, Sum> sums;
  const std::int64_t last = std::int64_t{timeline.steady_first} + timeline.periods - 1;
  const Timeline steady =
      expanded(timeline, timeline.steady_first,
               static_cast<std::int32_t>(std::min<std::int64_t>(last, std::numeric_limits<std::int32_t>::max())));
  for (const Span& span : steady.spans) {
    const auto weight = static_cast<double>(timeline.ranks[at(timeline.operations[at(span.operation)].rank)].ranks);
    Sum& sum = sums[kinds[at(span.operation)]];
    sum.executions += weight;
    sum.seconds += weight * seconds(span.end - span.start);
  }
  double ranks = 0;
  for (const TimelineRank& rank : timeline.ranks) ranks += static_cast<double>(rank.ranks);
  Kinds result;
  for (const auto& [kind, sum] : sums) {
    result[kind] = {sum.executions / (ranks * timeline.periods), sum.seconds / sum.executions};
  }
  return result;
}

}  // namespace

std::string_view kind_of_operation(std::string_view name) {
  constexpr std::string_view kLayer = "layer ", kPart = " part ", kOf = " of ";
  if (name.starts_with(kLayer)) {
    std::size_t end = kLayer.size();
    while (end < name.size() && is_digit(name[end])) ++end;
    if (end > kLayer.size() && end < name.size() && name[end] == ' ') name.remove_prefix(end + 1);
  }
  // " part 7", " part 7 of 11".
  if (const std::size_t part = name.rfind(kPart); part != std::string_view::npos) {
    std::string_view number = name.substr(part + kPart.size());
    if (const std::size_t of = number.find(kOf); of != std::string_view::npos && all_digits(number.substr(0, of))) {
      number.remove_prefix(of + kOf.size());
    }
    if (all_digits(number)) name.remove_suffix(name.size() - part);
  }
  return name;
}

double TimelineComparison::prediction_error_pct() const {
  return 100 * (predicted.step_s - measured.step_s) / measured.step_s;
}

TimelineComparison compare_timelines(const Timeline& predicted, const Timeline& measured) {
  TimelineComparison comparison;
  comparison.predicted = account(predicted).mean;
  comparison.measured = account(measured).mean;
  std::map<Kind, KindComparison> kinds;
  for (const auto& [kind, times] : steady_kinds(predicted)) kinds[kind].predicted = times;
  for (const auto& [kind, times] : steady_kinds(measured)) kinds[kind].measured = times;
  for (auto& [kind, both] : kinds) {
    std::tie(both.kind, both.activity) = kind;
    comparison.kinds.push_back(std::move(both));
  }
  // The map's order, by name, decides ties.
  std::stable_sort(comparison.kinds.begin(), comparison.kinds.end(),
                   [](const KindComparison& a, const KindComparison& b) {
                     return std::abs(a.difference_s()) > std::abs(b.difference_s());
                   });
  return comparison;
}

}  // namespace weft
