#include "app/analyze/analyze_verdict.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "app/analyze/kernel_names.hpp"
#include "base/text.hpp"
#include "timeline/trace/path_entries.hpp"

namespace weft {
namespace {

using nlohmann::ordered_json;

constexpr std::array<std::string_view, kCostKinds> kNames = {"computation", "exposed_communication", "copies",
                                                             "idle_host",   "idle_kernel",           "idle_other"};
// Who computes for so much of the time is bound by computation; else the largest of the others is what to look at.
constexpr double kComputeBound = 0.6;
// Smaller costs are left to the tables.
constexpr double kLeastShare = 0.01;

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}
double ratio(Nanos part, Nanos whole) {
  return whole.value > 0 ? static_cast<double>(part.value) / static_cast<double>(whole.value) : 0;
}

// Why, and what to do about it.
constexpr std::array<std::string_view, kExposedReasons> kReasonAdvice = {
    "another rank began it late: balance the work; the table of ranks says who is late",
    "nothing was left to compute: start it earlier, in smaller buckets, or in the next step",
    "the host waited for the device first: no synchronization (item(), cuda...Synchronize)",
    "the host had not launched what came next: CUDA graphs, fewer operators",
    "computation queued behind it on one stream: give communication a stream of its own",
    "it queued behind others on its stream: issue it as it is needed, in smaller buckets",
    "what came next needed it: cut it into parts, prefetch it, weave micro-batches",
    "what came next was launched; why it waited is unknown: see the trace of --out",
    "what came next waited for another transfer or stage: weft plan --explain says which"};

class Judge {
 public:
  Judge(const AnalyzeStudy& study, const LabelledStudy& labelled) : labelled_(labelled) {
    for (std::size_t r = 0; r < labelled.traces.size(); ++r) {
      const RankStudy& rank = labelled.study.ranks[r];
      const IdleTime& idle = study.use[labelled.traces[r]].idle.front();
      whole_ += rank.span;
      time(CostKind::computation) += rank.exposed.computation.total();
      time(CostKind::exposed_communication) += rank.exposed.total();
      time(CostKind::idle_host) += idle.time[static_cast<std::size_t>(IdleReason::host_wait)];
      time(CostKind::idle_kernel) += idle.time[static_cast<std::size_t>(IdleReason::kernel_wait)];
      time(CostKind::idle_other) += idle.time[static_cast<std::size_t>(IdleReason::other)];
      own_ = own_ || rank.trace->source == TraceSource::weft;
      add_table(table_, rank.table);
    }
    Nanos rest = whole_;
    for (const Nanos t : times_) rest -= t;
    time(CostKind::copies) = std::max(rest, Nanos{0});
  }

  Verdict verdict() {
    Verdict result;
    result.label = labelled_.label;
    for (int i = 0; i < kCostKinds; ++i) {
      const auto kind = static_cast<CostKind>(i);
      if (time(kind).value <= 0) continue;
      Cost cost{kind, time(kind), share(kind), {}, {}};
      describe(cost);
      result.costs.push_back(std::move(cost));
    }
    std::stable_sort(result.costs.begin(), result.costs.end(),
                     [](const Cost& a, const Cost& b) { return a.time > b.time; });
    result.headline = headline();
    return result;
  }

 private:
  Nanos& time(CostKind kind) { return times_[static_cast<std::size_t>(kind)]; }
  double share(CostKind kind) { return ratio(time(kind), whole_); }
  double idle_share() {
    return share(CostKind::idle_host) + share(CostKind::idle_kernel) + share(CostKind::idle_other);
  }

  std::string headline() {
    if (whole_.value <= 0) return "nothing ran";
    const double computes = share(CostKind::computation), communicates = share(CostKind::exposed_communication),
                 copies = share(CostKind::copies), idle = idle_share();
    if (computes >= kComputeBound) {
      return fmt::format("compute-bound: computation {} of the time, communication alone {}, idle {}",
                         percent(computes), percent(communicates), percent(idle));
    }
    if (communicates >= idle && communicates >= copies) {
      return fmt::format("communication-bound: alone {} of the time; computation {}, idle {}", percent(communicates),
                         percent(computes), percent(idle));
    }
    if (copies >= idle) {
      return fmt::format("copy-bound: copies run alone {} of the time; computation {}, idle {}", percent(copies),
                         percent(computes), percent(idle));
    }
    const auto part = [&](CostKind kind, const char* bound, const char* why) {
      return fmt::format("{}: device idle {} of the time, {} because {}", bound, percent(idle), percent(share(kind)),
                         why);
    };
    if (own_ && time(CostKind::idle_kernel) > time(CostKind::idle_other)) {
      return part(CostKind::idle_kernel, "short of cores", "ready work waits");
    }
    if (own_) return part(CostKind::idle_other, "waiting", "of other stages and ranks");
    if (time(CostKind::idle_host) >= std::max(time(CostKind::idle_kernel), time(CostKind::idle_other))) {
      return part(CostKind::idle_host, "host-bound", "the host launches late");
    }
    if (time(CostKind::idle_kernel) >= time(CostKind::idle_other)) {
      return part(CostKind::idle_kernel, "launch-bound", "kernels follow each other with gaps");
    }
    return part(CostKind::idle_other, "waiting", "what was launched waits");
  }

  void describe(Cost& cost) {
    switch (cost.kind) {
      case CostKind::computation:
        cost.what = "computation" + longest_kernel();
        cost.advice = "faster kernels, lower precision, less recomputation; kernels.csv of --out lists all";
        return;
      case CostKind::exposed_communication:
        return describe_communication(cost);
      case CostKind::copies:
        cost.what = "copies and fills with nothing beside them";
        cost.advice = "copy from pinned memory on a stream of its own, beside computation; copy less";
        return;
      case CostKind::idle_host:
        cost.what = "idle: the host had not launched the next kernel" + longest_host_work();
        cost.advice = "CUDA graphs or torch.compile, larger micro-batches, fewer operators, no synchronization";
        return;
      case CostKind::idle_kernel:
        if (own_) {
          cost.what = "idle: ready, but not begun";
          cost.advice = "fewer ranks and threads on a machine, or more cores";
          return;
        }
        cost.what = fmt::format("idle: gaps below {} between kernels that were launched", format_time(kShortGap));
        cost.advice = "CUDA graphs, fewer and larger kernels (fusion)";
        return;
      case CostKind::idle_other:
        cost.what =
            own_ ? "idle: waits for other stages and ranks" : "idle: launched, but waiting for other streams or ranks";
        cost.advice = own_ ? "more micro-batches, more model chunks a stage (--vpp), other stages; weft plan --explain"
                           : "see the critical path: events between streams, and who is waited for";
        return;
    }
  }

  void describe_communication(Cost& cost) {
    const auto& [key, row] = *by_exposed_time(table_).front();
    const auto top =
        static_cast<std::size_t>(std::max_element(row.reasons.begin(), row.reasons.end()) - row.reasons.begin());
    const std::string group = key.group == "?" ? "" : " over " + key.group;
    cost.what = fmt::format("communication alone, {} of it {}{}", percent(ratio(row.exposed, cost.time)),
                            key.collective.substr(0, 30), group.substr(0, 30));
    cost.advice = kReasonAdvice[top];
  }

  // ", 41.2 % of it ampere_sgemm_128x64_nn"
  std::string longest_kernel() {
    std::map<std::string, double> by_name;
    double all = 0;
    for (const auto& [key, total] : total_operations(labelled_.study).operations) {
      if (key.first != KernelKind::computation) continue;
      by_name[key.second] += total.time_s;
      all += total.time_s;
    }
    const auto top = std::max_element(by_name.begin(), by_name.end(),
                                      [](const auto& a, const auto& b) { return a.second < b.second; });
    if (top == by_name.end() || !(all > 0)) return "";
    return fmt::format(", {} of it {}", percent(top->second / all), column_names({top->first}, 48).front());
  }

  std::string longest_host_work() const {
    for (const PathEntry& entry : path_entries(labelled_.study)) {
      if (entry.kind != PathKind::host) continue;
      return entry.name.empty() ? "; most of its time is between operators"
                                : fmt::format("; most in {}", column_names({entry.name}, 28).front());
    }
    return "";
  }

  const LabelledStudy& labelled_;
  std::array<Nanos, kCostKinds> times_{};
  ExposureTable table_;
  Nanos whole_;
  bool own_ = false;
};

}  // namespace

std::string_view name_of(CostKind kind) {
  return kNames[static_cast<std::size_t>(kind)];
}

std::vector<Verdict> judge(const AnalyzeStudy& study, const WhyReport& why) {
  std::vector<Verdict> verdicts;
  for (const LabelledStudy& labelled : why.labels) verdicts.push_back(Judge(study, labelled).verdict());
  return verdicts;
}

void print_verdicts(const std::vector<Verdict>& verdicts, std::ostream& out) {
  for (const Verdict& verdict : verdicts) {
    out << fmt::format("Verdict{}: {}\n", verdict.label.empty() ? "" : ", " + verdict.label, verdict.headline);
    for (const Cost& cost : verdict.costs) {
      if (cost.share < kLeastShare) continue;
      out << fmt::format("{:>9}  {}\n{:>11}{}\n", percent(cost.share), cost.what, "", cost.advice);
    }
    out << "\n";
  }
}

void add_verdicts_json(const std::vector<Verdict>& verdicts, ordered_json& json) {
  json["verdicts"] = ordered_json::array();
  for (const Verdict& verdict : verdicts) {
    ordered_json entry;
    if (!verdict.label.empty()) entry["label"] = verdict.label;
    entry["headline"] = verdict.headline;
    entry["costs"] = ordered_json::array();
    for (const Cost& cost : verdict.costs) {
      entry["costs"].push_back({{"kind", name_of(cost.kind)},
                                {"time_us", static_cast<double>(cost.time.value) / 1000.0},
                                {"share_pct", 100 * cost.share},
                                {"what", cost.what},
                                {"advice", cost.advice}});
    }
    json["verdicts"].push_back(std::move(entry));
  }
}

}  // namespace weft
