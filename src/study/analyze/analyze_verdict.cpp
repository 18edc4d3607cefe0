#include "study/analyze/analyze_verdict.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "base/enum_name.hpp"
#include "timeline/trace/path_entries.hpp"

namespace weft {
namespace {

constexpr EnumArray<CostKind, std::string_view, kCostKinds> kNames = {
    "computation", "exposed_communication", "copies", "idle_host", "idle_kernel", "idle_other"};
// A job that computes for this share of the time is bound by computation; otherwise the largest other cost decides.
constexpr double kComputeBound = 0.6;
// Unless the host is on more than this share of the critical path.
constexpr double kMostOfPath = 0.5;

double ratio(Nanos part, Nanos whole) {
  return whole.value > 0 ? static_cast<double>(part.value) / static_cast<double>(whole.value) : 0;
}

class Judge {
 public:
  Judge(const AnalyzeStudy& study, const LabelledStudy& labelled) : labelled_(labelled) {
    for (std::size_t r = 0; r < labelled.traces.size(); ++r) {
      const RankStudy& rank = labelled.study.ranks[r];
      const IdleTime& idle = study.use[labelled.traces[r]].idle.front();
      whole_ += rank.span;
      time(CostKind::computation) += rank.exposed.computation.total();
      time(CostKind::exposed_communication) += rank.exposed.total();
      time(CostKind::idle_host) += idle.time[IdleReason::host_wait];
      time(CostKind::idle_kernel) += idle.time[IdleReason::kernel_wait];
      time(CostKind::idle_other) += idle.time[IdleReason::other];
      verdict_.of_own_runs = verdict_.of_own_runs || rank.trace->source == TraceSource::weft;
      add_table(table_, rank.table);
    }
    Nanos rest = whole_;
    for (const Nanos t : times_) rest -= t;
    time(CostKind::copies) = std::max(rest, Nanos{0});
  }

  Verdict verdict() {
    verdict_.label = labelled_.label;
    for (int i = 0; i < kCostKinds; ++i) {
      const auto kind = static_cast<CostKind>(i);
      if (time(kind).value <= 0) continue;
      Cost cost{kind, time(kind), ratio(time(kind), whole_)};
      if (kind == CostKind::computation) find_longest_kernel(cost);
      if (kind == CostKind::exposed_communication) find_most_exposed(cost);
      if (kind == CostKind::idle_host) find_longest_host_work(cost);
      verdict_.costs.push_back(std::move(cost));
    }
    std::stable_sort(verdict_.costs.begin(), verdict_.costs.end(),
                     [](const Cost& a, const Cost& b) { return a.time > b.time; });
    find_path();
    verdict_.bound_by = bound_by();
    return std::move(verdict_);
  }

 private:
  Nanos& time(CostKind kind) { return times_[kind]; }

  BoundBy bound_by() {
    if (whole_.value <= 0) return BoundBy::nothing;
    const double communicates = verdict_.share(CostKind::exposed_communication),
                 copies = verdict_.share(CostKind::copies), idle = verdict_.idle_share();
    if (verdict_.share(CostKind::computation) >= kComputeBound) {
      // Kernels that run while the host decides what comes next do not make the step longer: the path does.
      return verdict_.host_on_path > kMostOfPath ? BoundBy::host : BoundBy::computation;
    }
    if (communicates >= idle && communicates >= copies) return BoundBy::communication;
    if (copies >= idle) return BoundBy::copies;
    const Nanos host = time(CostKind::idle_host), gaps = time(CostKind::idle_kernel),
                others = time(CostKind::idle_other);
    if (verdict_.of_own_runs) return gaps > others ? BoundBy::cores : BoundBy::waiting;
    if (host >= std::max(gaps, others)) return BoundBy::host;
    return gaps >= others ? BoundBy::launches : BoundBy::waiting;
  }

  void find_path() {
    Nanos path, host;
    for (const PathEntry& entry : path_entries(labelled_.study)) {
      path += entry.time;
      const bool of_host =
          entry.kind == PathKind::host || entry.kind == PathKind::launch_delay || entry.kind == PathKind::host_wake;
      if (of_host) host += entry.time;
    }
    verdict_.host_on_path = ratio(host, path);
  }

  void find_longest_kernel(Cost& cost) const {
    std::map<std::string, double> by_name;
    double all = 0;
    for (const auto& [key, total] : total_operations(labelled_.study).operations) {
      if (key.first != KernelKind::computation) continue;
      by_name[key.second] += total.time_s;
      all += total.time_s;
    }
    const auto top = std::max_element(by_name.begin(), by_name.end(),
                                      [](const auto& a, const auto& b) { return a.second < b.second; });
    if (top == by_name.end() || !(all > 0)) return;
    cost.largest = top->first;
    cost.largest_share = top->second / all;
  }

  void find_most_exposed(Cost& cost) const {
    const auto& [key, row] = *by_exposed_time(table_).front();
    cost.largest = key.collective;
    cost.largest_share = ratio(row.exposed, cost.time);
    cost.group = key.group;
    cost.reason =
        static_cast<ExposedReason>(std::max_element(row.reasons.begin(), row.reasons.end()) - row.reasons.begin());
  }

  void find_longest_host_work(Cost& cost) const {
    for (const PathEntry& entry : path_entries(labelled_.study)) {
      if (entry.kind != PathKind::host) continue;
      cost.largest = entry.name;
      return;
    }
  }

  const LabelledStudy& labelled_;
  EnumArray<CostKind, Nanos, kCostKinds> times_{};
  ExposureTable table_;
  Nanos whole_;
  Verdict verdict_;
};

}  // namespace

std::string_view name_of(CostKind kind) {
  return kNames[kind];
}

double Verdict::share(CostKind kind) const {
  const auto found = std::find_if(costs.begin(), costs.end(), [&](const Cost& cost) { return cost.kind == kind; });
  return found == costs.end() ? 0 : found->share;
}

double Verdict::idle_share() const {
  return share(CostKind::idle_host) + share(CostKind::idle_kernel) + share(CostKind::idle_other);
}

std::vector<Verdict> judge(const AnalyzeStudy& study, const WhyReport& why) {
  std::vector<Verdict> verdicts;
  for (const LabelledStudy& labelled : why.labels) verdicts.push_back(Judge(study, labelled).verdict());
  return verdicts;
}

}  // namespace weft
