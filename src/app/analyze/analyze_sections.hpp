// The sections of `weft analyze`, as text and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <vector>

#include "study/analyze/analyze_study.hpp"
#include "study/analyze/analyze_verdict.hpp"
#include "study/analyze/analyze_why.hpp"
#include "study/analyze/trace_comparison.hpp"

namespace weft {

// The opening: what cost the most time, in words, and what to do about it. Adds "verdicts".
void print_verdicts(const std::vector<Verdict>& verdicts, std::ostream& out);
void add_verdicts_json(const std::vector<Verdict>& verdicts, nlohmann::ordered_json& json);

// The breakdown that Holistic Trace Analysis prints too. Adds "ranks" and "kernel_types".
void print_breakdown(const AnalyzeStudy& study, std::ostream& out);
void add_breakdown_json(const AnalyzeStudy& study, nlohmann::ordered_json& json);
// Writes a row per rank and kernel name: count, total, mean, shortest, longest.
void write_kernels_csv(const AnalyzeStudy& study, std::ostream& out);

// Why devices were idle, how long launches took, and how far ahead the host was. Prints nothing where no trace has
// launches, as in our own traces. Adds "idle", "launches" and "queues" to the entries of "ranks", which must be there.
void print_device_use(const AnalyzeStudy& study, std::ostream& out);
void add_device_use_json(const AnalyzeStudy& study, nlohmann::ordered_json& json);

// Which communication is exposed and why, what could hide it and how much that would gain, who keeps others waiting,
// how fast it moves, and the critical path. Adds to the entries of "ranks", which must be there, and "communication",
// "matching", "critical_path".
void print_why(const WhyReport& report, std::ostream& out);
void add_why_json(const WhyReport& report, nlohmann::ordered_json& json);
// Writes a Chrome trace; of a file with several labels, of what was measured.
void write_why_trace(const WhyReport& report, std::ostream& out);

// What changed between two sets of traces. Adds "comparison".
void print_comparison(const TraceComparison& comparison, std::ostream& out);
void add_comparison_json(const TraceComparison& comparison, nlohmann::ordered_json& json);

}  // namespace weft
