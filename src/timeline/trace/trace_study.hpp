// All findings about the communication of one or several ranks, in one value.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "timeline/trace/device_critical_path.hpp"
#include "timeline/trace/exposure_table.hpp"
#include "timeline/trace/rank_match.hpp"
#include "timeline/trace/trace_totals.hpp"

namespace weft {

struct RankStudy {
  const DeviceTrace* trace = nullptr;
  DeviceOrder order;
  CommunicationTable communication;
  std::vector<PeerStart> peers;
  ExposedCommunication exposed;
  OverlapBound bound;
  ExposureTable table;
  RankLateness lateness;
  Nanos span;              // from the first start to the last end
  std::int64_t steps = 0;  // that have activities; 0: the trace marks none

  TotalsInput totals_input() const { return {trace, &order, &communication, &exposed}; }
};

struct TraceStudy {
  std::vector<RankStudy> ranks;  // as given
  RankMatch match;
  std::vector<PathSegment> path;
};

struct StudyInput {
  const DeviceTrace* trace = nullptr;
  std::vector<std::int32_t> activities;  // that are looked at; ascending
};

struct StudyOptions {
  // The critical path is that of one step, by its number: from the first start to the last end of what was launched in
  // it, on all ranks; it is empty where no trace has that step.
  std::optional<std::int64_t> step;
  std::int64_t group_size = 0;  // taken for groups whose size no trace says; 0: unknown
};

// The traces must outlive the study. O(n log n).
TraceStudy study_ranks(std::vector<StudyInput> ranks, const StudyOptions& options = {});

TraceTotals total_operations(const TraceStudy& study);

}  // namespace weft
