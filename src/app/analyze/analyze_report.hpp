// All that `weft analyze` reports, as one value.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "study/analyze/analyze_study.hpp"
#include "study/analyze/analyze_verdict.hpp"
#include "study/analyze/analyze_why.hpp"
#include "study/analyze/trace_comparison.hpp"

namespace weft {

// The verdict, the breakdown, why devices were idle, why communication is exposed, and the comparison where one is
// asked for. `why` and `verdicts` refer to `study`, so a report is not copied.
struct AnalyzeReport {
  AnalyzeStudy study;
  WhyReport why;
  std::vector<Verdict> verdicts;
  std::optional<TraceComparison> comparison;
};

// The object that --json prints (docs/analyze.md).
nlohmann::ordered_json analyze_json(const AnalyzeReport& report);

}  // namespace weft
