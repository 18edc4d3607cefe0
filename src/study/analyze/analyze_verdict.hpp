// What cost the most time in a set of traces, and what it was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "study/analyze/analyze_study.hpp"
#include "study/analyze/analyze_why.hpp"

namespace weft {

// Every instant of a rank, from its first start to its last end, is one of these.
enum class CostKind : std::uint8_t {
  computation,            // computation runs, whatever runs beside it
  exposed_communication,  // communication runs and no computation
  copies,                 // copies, fills and what has no kind run alone
  idle_host,              // nothing runs: the host had not launched the next kernel
  idle_kernel,            // nothing runs: short gaps between kernels
  idle_other              // nothing runs: what was launched waited
};
inline constexpr int kCostKinds = 6;
std::string_view name_of(CostKind kind);

struct Cost {
  CostKind kind = CostKind::computation;
  Nanos time;        // of all ranks together
  double share = 0;  // of the time of all ranks, 0..1
  // What most of it is, where that is known: a kernel, a collective, an operator of the host ("": between operators).
  std::optional<std::string> largest = std::nullopt;
  double largest_share = 0;                            // of the cost
  std::string group = {};                              // of a collective
  ExposedReason reason = ExposedReason::launch_delay;  // why most of a collective is exposed
};

// What to look at first.
enum class BoundBy : std::uint8_t { nothing, computation, communication, copies, cores, host, launches, waiting };

struct Verdict {
  std::string label;         // of the traces: "predicted", "measured"
  bool of_own_runs = false;  // Weft's own traces, in which no host is seen
  BoundBy bound_by = BoundBy::nothing;
  std::vector<Cost> costs;  // the largest first; only what occurs
  double host_on_path = 0;  // share of the critical path on which the host works towards the next launch

  double share(CostKind kind) const;
  double idle_share() const;
};

// One for each label.
std::vector<Verdict> judge(const AnalyzeStudy& study, const WhyReport& why);

}  // namespace weft
