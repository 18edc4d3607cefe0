// Which communication of traces is exposed and why, what could hide it and how much that would gain, who keeps others
// waiting, and the critical path.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "study/analyze/analyze_study.hpp"
#include "timeline/trace/trace_study.hpp"

namespace weft {

// All ranks of one label ("predicted", "measured"; "" for most traces). Only these meet in collectives.
struct LabelledStudy {
  std::string label;
  std::vector<std::size_t> traces;  // indices into AnalyzeStudy::traces
  TraceStudy study;
};

struct WhyOptions {
  std::optional<Bandwidth> link;     // of --link
  std::optional<std::int64_t> step;  // of --step: the step whose critical path is asked for
  std::int64_t group_size = 0;       // of --group-size, for groups that do not say their size; 0: unknown
};

struct WhyReport {
  std::vector<LabelledStudy> labels;  // as labels come in the traces
  WhyOptions options;
};

// The study must outlive the report. Throws Error where no trace has the step.
WhyReport explain_traces(const AnalyzeStudy& study, const WhyOptions& options = {});

// Returns what the links of a device carry per direction: --link, or else what is known of the device that the trace
// names. Nothing where a group of so many ranks is larger than the node.
std::optional<Bandwidth> link_of(const WhyReport& report, const DeviceTrace& trace, std::int64_t group_ranks);

}  // namespace weft
