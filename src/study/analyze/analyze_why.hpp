// Which communication of traces is exposed and why, what could hide it and how much that would gain, who keeps others
// waiting, and the critical path.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "study/analyze/analyze_study.hpp"
#include "timeline/trace/trace_study.hpp"

namespace weft {

// The ranks of one label ("predicted", "measured"; "" for most traces) together: only these meet in collectives.
struct LabelledStudy {
  std::string label;
  std::vector<std::size_t> traces;  // indices into AnalyzeStudy::traces
  TraceStudy study;
};

struct WhyOptions {
  std::optional<Bandwidth> link;     // of --link
  std::optional<std::int64_t> step;  // of --step: whose critical path is asked for
  std::int64_t group_size = 0;       // of --group-size: of groups that do not say theirs; 0: unknown
};

struct WhyReport {
  std::vector<LabelledStudy> labels;  // as labels come in the traces
  WhyOptions options;
};

// The study must outlive the report. Throws Error where no trace has the step.
WhyReport explain_traces(const AnalyzeStudy& study, const WhyOptions& options = {});

// What the links of a device carry per direction, where a group of so many ranks can be within its node: --link, else
// what the trace says of its devices.
std::optional<Bandwidth> link_of(const WhyReport& report, const DeviceTrace& trace, std::int64_t group_ranks);

}  // namespace weft
