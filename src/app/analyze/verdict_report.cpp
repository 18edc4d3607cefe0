#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "app/analyze/analyze_sections.hpp"
#include "app/analyze/kernel_names.hpp"
#include "base/text.hpp"

namespace weft {
namespace {

using nlohmann::ordered_json;

// Smaller costs are left to the tables.
constexpr double kMinShare = 0.01;

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

// By reason: why, and what to do about it.
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

// "host-bound: device idle 78.2 % of the time, ..."
std::string headline(const Verdict& verdict) {
  const auto share = [&](CostKind kind) { return percent(verdict.share(kind)); };
  const std::string computes = share(CostKind::computation), communicates = share(CostKind::exposed_communication),
                    idle = percent(verdict.idle_share());
  const auto idle_words = [&](CostKind kind, const char* bound, const char* why) {
    return fmt::format("{}: device idle {} of the time, {} because {}", bound, idle, share(kind), why);
  };
  switch (verdict.bound_by) {
    case BoundBy::nothing:
      return "nothing ran";
    case BoundBy::computation:
      return fmt::format("compute-bound: computation {} of the time, communication alone {}, idle {}", computes,
                         communicates, idle);
    case BoundBy::communication:
      return fmt::format("communication-bound: alone {} of the time; computation {}, idle {}", communicates, computes,
                         idle);
    case BoundBy::copies:
      return fmt::format("copy-bound: copies run alone {} of the time; computation {}, idle {}",
                         share(CostKind::copies), computes, idle);
    case BoundBy::cores:
      return idle_words(CostKind::idle_kernel, "short of cores", "ready work waits");
    case BoundBy::host:
      if (verdict.idle_share() < verdict.share(CostKind::computation)) {
        return fmt::format("host-bound: {} of the critical path; computation {} of the time, idle {}",
                           percent(verdict.host_on_path), computes, idle);
      }
      return idle_words(CostKind::idle_host, "host-bound", "the host launches late");
    case BoundBy::launches:
      return idle_words(CostKind::idle_kernel, "launch-bound", "kernels follow each other with gaps");
    case BoundBy::waiting:
      return idle_words(CostKind::idle_other, "waiting",
                        verdict.of_own_runs ? "of other stages and ranks" : "what was launched waits");
  }
  return "";
}

// ", 41.2 % of it ampere_sgemm_128x64_nn"
std::string longest_kernel(const Cost& cost) {
  if (!cost.largest) return "";
  return fmt::format(", {} of it {}", percent(cost.largest_share), column_names({*cost.largest}, 48).front());
}

std::string longest_host_work(const Cost& cost) {
  if (!cost.largest) return "";
  return cost.largest->empty() ? "; most of its time is between operators"
                               : fmt::format("; most in {}", column_names({*cost.largest}, 28).front());
}

std::string most_exposed(const Cost& cost) {
  const std::string group = cost.group == "?" ? "" : " over " + cost.group;
  return fmt::format(", {} of it {}{}", percent(cost.largest_share), cost.largest->substr(0, 30), group.substr(0, 30));
}

struct CostWords {
  std::string what;
  std::string_view advice;
};

CostWords words_of(const Cost& cost, bool of_own_runs) {
  switch (cost.kind) {
    case CostKind::computation:
      return {"computation" + longest_kernel(cost),
              "faster kernels, lower precision, less recomputation; kernels.csv of --out lists all"};
    case CostKind::exposed_communication:
      return {"communication alone" + most_exposed(cost), kReasonAdvice[static_cast<std::size_t>(cost.reason)]};
    case CostKind::copies:
      return {"copies and fills with nothing beside them",
              "copy from pinned memory on a stream of its own, beside computation; copy less"};
    case CostKind::idle_host:
      return {"idle: the host had not launched the next kernel" + longest_host_work(cost),
              "CUDA graphs or torch.compile, larger micro-batches, fewer operators, no synchronization"};
    case CostKind::idle_kernel:
      if (of_own_runs) return {"idle: ready, but not begun", "fewer ranks and threads on a machine, or more cores"};
      return {fmt::format("idle: gaps below {} between kernels that were launched", format_time(kShortGap)),
              "CUDA graphs, fewer and larger kernels (fusion)"};
    case CostKind::idle_other:
      if (of_own_runs) {
        return {"idle: waits for other stages and ranks",
                "more micro-batches, more model chunks a stage (--vpp), other stages; weft plan --explain"};
      }
      return {"idle: launched, but waiting for other streams or ranks",
              "see the critical path: events between streams, and who is waited for"};
  }
  return {};
}

}  // namespace

void print_verdicts(const std::vector<Verdict>& verdicts, std::ostream& out) {
  for (const Verdict& verdict : verdicts) {
    out << fmt::format("Verdict{}: {}\n", verdict.label.empty() ? "" : ", " + verdict.label, headline(verdict));
    for (const Cost& cost : verdict.costs) {
      if (cost.share < kMinShare) continue;
      const auto& [what, advice] = words_of(cost, verdict.of_own_runs);
      out << fmt::format("{:>9}  {}\n{:>11}{}\n", percent(cost.share), what, "", advice);
    }
    out << "\n";
  }
}

void add_verdicts_json(const std::vector<Verdict>& verdicts, ordered_json& json) {
  json["verdicts"] = ordered_json::array();
  for (const Verdict& verdict : verdicts) {
    ordered_json entry;
    if (!verdict.label.empty()) entry["label"] = verdict.label;
    entry["headline"] = headline(verdict);
    entry["costs"] = ordered_json::array();
    for (const Cost& cost : verdict.costs) {
      const auto& [what, advice] = words_of(cost, verdict.of_own_runs);
      entry["costs"].push_back({{"kind", name_of(cost.kind)},
                                {"time_us", static_cast<double>(cost.time.value) / 1000.0},
                                {"share_pct", 100 * cost.share},
                                {"what", what},
                                {"advice", advice}});
    }
    json["verdicts"].push_back(std::move(entry));
  }
}

}  // namespace weft
