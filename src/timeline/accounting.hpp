// Where the step's time went: step = compute + slowdown + exposed + bubble + idle, disjoint, for each rank.
//
// At an instant at which a rank computes nothing, take its next compute operation and follow the last-finishing
// unfinished predecessor (ties: the lowest operation) until one that runs at that instant: a transfer of this rank is
// exposed communication; any other rank's operation is a pipeline bubble (waiting for a late peer, not for bytes);
// nothing running is idle time. Where it is a peer's end of a shared transfer (as measured, ends differ), it is exposed
// while a transfer of this rank runs.
//
// "Next" is the compute span that starts next, one of length zero included (ties: the lowest operation). A transfer
// of several ranks waits for what any of its members waits for. Where the dependencies are unknown, or no compute
// span follows, a rank's own transfer that runs (the last to end) is exposed. Compute spans of one rank that overlap
// count once.
#pragma once

#include <array>
#include <vector>

#include "timeline/rank_spans.hpp"
#include "timeline/span_index.hpp"
#include "timeline/timeline.hpp"

namespace weft {

// Per step of the steady state; doubles because a window of several periods is divided. The window's end is rounded to
// a whole nanosecond, so that the sum holds exactly.
struct RankAccount {
  double step_s = 0;
  double compute_s = 0;   // compute alone
  double slowdown_s = 0;  // compute stretched by interference: sum of max(0, span - alone)
  double exposed_s = 0;   // sum of exposed_by
  EnumArray<TrafficKind, double, kTrafficKinds> exposed_by{};
  double bubble_s = 0;
  double idle_s = 0;
  double comm_s = 0;  // |union of this rank's transfers|
};
// 100 * (1 - exposed / comm); NaN without communication.
double hidden_pct(const RankAccount& account);

// An exposed stretch, for traces: [begin, end) on a rank, by the kind of the transfer waited for. As long as can be:
// two that touch differ in kind.
struct ExposedStretch {
  std::int32_t rank = 0;
  TrafficKind kind = TrafficKind::other;
  Nanos begin, end;
};

// What exposed stretches consist of: the transfer waited for, and the compute operation that comes next.
struct ExposedPart {
  std::int32_t rank = 0;
  TransferPart transfer;
  std::int32_t waiting = -1;  // operation; -1: none follows
};

struct Accounting {
  std::vector<RankAccount> ranks;       // by Timeline::ranks
  RankAccount mean;                     // weighted by TimelineRank::ranks
  RankAccount max;                      // term by term
  std::vector<ExposedStretch> exposed;  // by rank, ascending, within the steady window
};

// O(n log n) in the spans, plus the predecessors followed. Throws Error where check_timeline does, without a period,
// and on dependencies that form a cycle.
Accounting account(const Timeline& timeline);

// The same with an index at hand (which check_timeline came before).
Accounting account(const Timeline& timeline, SpanIndex& index);

// By rank, ascending, disjoint; each rank's add up to its exposed time.
std::vector<ExposedPart> exposed_parts(const Timeline& timeline, SpanIndex& index);

}  // namespace weft
