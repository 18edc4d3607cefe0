// Why the exposed time of one rank was not hidden (explain.hpp).
#pragma once

#include <vector>

#include "timeline/accounting.hpp"
#include "timeline/explain.hpp"
#include "timeline/rank_spans.hpp"

namespace weft {

// Time that is exposed for one reason. Operations, not kinds.
struct ReasonedTime {
  std::int32_t operation = 0;  // the exposed transfer
  ExposureReason reason = ExposureReason::dependency;
  std::int32_t cause = -1;       // operation; as Exposure::cause
  std::int32_t cause_rank = -1;  // as Exposure::cause_rank
  std::int32_t waiting = -1;     // operation
  Nanos time;
};

// A compute operation that ran: where, and since when all that it needs was there.
struct ReadyCompute {
  std::int32_t operation = 0;
  Nanos ready, start, end;
};

// What happened on one rank, in order.
struct RankHistory {
  std::vector<ReadyCompute> computing;  // from the window's begin on; by start
  std::vector<Span> transfers;          // as RankSpans has them
  std::vector<ExposedPart> exposed;     // as exposed_parts gives them
};

// Adds up to the exposed parts.
std::vector<ReasonedTime> find_reasons(const Timeline& timeline, const SpanIndex& index, const RankHistory& history,
                                       const std::vector<Nanos>& fixed);

// When all that the operation waits for beside its place in queues was there; the beginning of time where that is
// nothing.
Nanos ready_at(const SpanIndex& index, std::int32_t operation, std::int32_t iteration);

}  // namespace weft
