#include "timeline/trace/trace_totals.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "timeline/compare.hpp"

namespace weft {
namespace {

constexpr std::array<std::string_view, 4> kChangeNames = {"same", "changed", "appeared", "vanished"};

// What one rank spent, not yet divided by its steps. Names are made once for every (name, group), not per activity.
class RankTotals {
 public:
  explicit RankTotals(const TotalsInput& rank) : rank_(rank), totals_of_(rank.trace->device.size(), nullptr) {}

  void add_to(TraceTotals& all) {
    std::vector<bool> seen(rank_.trace->steps.size(), false);
    Nanos first{0}, last{0};
    for (const std::int32_t i : rank_.order->activities) {
      const DeviceActivity& activity = rank_.trace->device[i];
      if (i == rank_.order->activities.front()) first = last = activity.start;
      last = std::max(last, activity.end);
      if (activity.step != kAbsent) seen[activity.step] = true;
      OperationTotal& total = total_of(i);
      total.count += 1;
      total.time_s += seconds(activity.duration());
    }
    for (const DeviceExposure& stretch : rank_.exposed->stretches) {
      totals_of_[stretch.activity]->exposed_s += seconds(stretch.end - stretch.begin);
    }
    const auto steps = static_cast<double>(std::max<std::ptrdiff_t>(std::count(seen.begin(), seen.end(), true), 1));
    ++all.ranks;
    all.steps += steps;
    all.span_s += seconds(last - first) / steps;
    all.computation_s += seconds(rank_.exposed->computation.total()) / steps;
    all.communication_s += seconds(rank_.exposed->communication.total()) / steps;
    all.exposed_s += seconds(rank_.exposed->total()) / steps;
    for (const auto& [key, total] : totals_) {
      OperationTotal& sum = all.operations[key];
      sum.count += total.count / steps;
      sum.time_s += total.time_s / steps;
      sum.exposed_s += total.exposed_s / steps;
    }
  }

 private:
  OperationTotal& total_of(std::int32_t i) {
    const std::size_t index = i;
    const DeviceActivity& activity = rank_.trace->device[index];
    const bool communicates = activity.kind == KernelKind::communication;
    const std::array<std::int32_t, 4> facts = {static_cast<std::int32_t>(activity.kind), activity.name,
                                               communicates ? rank_.communication->of[index].label : kAbsent,
                                               communicates ? rank_.communication->of[index].group : kAbsent};
    OperationTotal*& total = by_facts_[facts];
    if (total == nullptr) total = &totals_[{activity.kind, operation_name(rank_, i)}];
    return *(totals_of_[index] = total);
  }

  const TotalsInput& rank_;
  std::map<std::pair<KernelKind, std::string>, OperationTotal> totals_;
  std::map<std::array<std::int32_t, 4>, OperationTotal*> by_facts_;
  std::vector<OperationTotal*> totals_of_;  // by activity
};

}  // namespace

std::string operation_name(const TotalsInput& rank, std::int32_t activity) {
  const std::size_t index = activity;
  const DeviceActivity& what = rank.trace->device[index];
  const std::string& name = rank.trace->names[what.name];
  if (rank.trace->source == TraceSource::weft) return std::string(kind_of_operation(name));
  if (what.kind != KernelKind::communication) return name;
  const TracedCommunication& communication = rank.communication->of[index];
  const std::string& label = rank.communication->labels[communication.label];
  const std::string& group = rank.communication->groups[communication.group].label;
  return group == "?" ? label : label + " over " + group;
}

std::string_view name_of(ChangeKind change) {
  return kChangeNames[static_cast<std::size_t>(change)];
}

TraceTotals total_operations(const std::vector<TotalsInput>& ranks) {
  TraceTotals all;
  for (const TotalsInput& rank : ranks) RankTotals(rank).add_to(all);
  const auto count = static_cast<double>(std::max<std::int64_t>(all.ranks, 1));
  for (double* sum : {&all.steps, &all.span_s, &all.computation_s, &all.communication_s, &all.exposed_s}) *sum /= count;
  for (auto& [key, total] : all.operations) {
    total.count /= count;
    total.time_s /= count;
    total.exposed_s /= count;
  }
  return all;
}

std::vector<OperationChange> compare_totals(const TraceTotals& before, const TraceTotals& after) {
  std::map<std::pair<KernelKind, std::string>, OperationChange> changes;
  for (const auto& [key, total] : before.operations) changes[key].before = total;
  for (const auto& [key, total] : after.operations) changes[key].after = total;
  std::vector<OperationChange> result;
  for (auto& [key, change] : changes) {
    change.kind = key.first;
    change.name = key.second;
    change.change = change.before.count == 0        ? ChangeKind::appeared
                    : change.after.count == 0       ? ChangeKind::vanished
                    : change.before == change.after ? ChangeKind::same
                                                    : ChangeKind::changed;
    result.push_back(std::move(change));
  }
  std::stable_sort(result.begin(), result.end(), [](const OperationChange& a, const OperationChange& b) {
    return std::abs(a.difference_s()) > std::abs(b.difference_s());
  });
  return result;
}

}  // namespace weft
