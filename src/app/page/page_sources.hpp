// What the commands found out, as report pages show it.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "io/report/report_page.hpp"
#include "study/analyze/analyze_why.hpp"
#include "study/chakra/chakra_study.hpp"
#include "study/plan/plan_study.hpp"
#include "study/run/run_study.hpp"

namespace weft {

// `summary` is what --json of the command prints. The best policy's timeline comes first; where a page would hold too
// many spans, other policies have none.
ReportSource source_of_plans(const PlanStudy& study, nlohmann::ordered_json summary);
// Predicted and measured timelines of every policy.
ReportSource source_of_run(const RunStudy& study, nlohmann::ordered_json summary);
// Every order of Chakra's traces, the best first.
ReportSource source_of_chakra(const ChakraStudy& study, nlohmann::ordered_json summary);
ReportSource source_of_traces(const WhyReport& report, nlohmann::ordered_json summary);

// Writes report.html with this one source into the folder, which is there. Returns its path.
std::string write_report_file(const std::filesystem::path& folder, ReportSource source);

}  // namespace weft
