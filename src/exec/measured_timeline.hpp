// Puts together what ranks measured as the timeline that simulation predicts.
#pragma once

#include <vector>

#include "exec/rank_run.hpp"
#include "timeline/timeline.hpp"

namespace weft {

// Holds one rank's measurements, on a clock that all ranks share.
struct MeasuredRank {
  Rank rank;
  ClassId rank_class;
  std::vector<RankSpan> spans;  // as RankRun::spans()
};

struct MeasuredRun {
  std::int64_t steps = 0;    // that were measured: of a long run the last ones
  std::int64_t warm_up = 0;  // steps that do not count
  std::vector<MeasuredRank> ranks;
  std::int64_t before = 0;  // steps of the run before those
};

// `alone`: by OpId, the durations that the profile gives (the accounting calls what exceeds them slowdown).
Timeline measured_timeline(const WholePlan& whole, const std::vector<Nanos>& alone, const MeasuredRun& run);

}  // namespace weft
