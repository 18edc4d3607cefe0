// What `weft analyze` opens with: what cost the most time, in words, and what to do about it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "app/analyze/analyze_study.hpp"
#include "app/analyze/analyze_why.hpp"

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
  std::string what, advice;
};

struct Verdict {
  std::string label;        // of the traces: "predicted", "measured"
  std::string headline;     // "host-bound: device idle 78.2 % of the time, ..."
  std::vector<Cost> costs;  // the largest first; only what occurs
};

// One for each label.
std::vector<Verdict> judge(const AnalyzeStudy& study, const WhyReport& why);

void print_verdicts(const std::vector<Verdict>& verdicts, std::ostream& out);
// Adds "verdicts".
void add_verdicts_json(const std::vector<Verdict>& verdicts, nlohmann::ordered_json& json);

}  // namespace weft
