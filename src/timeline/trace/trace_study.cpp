#include "timeline/trace/trace_study.hpp"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

void measure_span(RankStudy& study) {
  std::vector<bool> seen(study.trace->steps.size(), false);
  Nanos first{0}, last{0};
  for (const std::int32_t i : study.order.activities) {
    const DeviceActivity& activity = study.trace->device[i];
    if (i == study.order.activities.front()) first = last = activity.start;
    last = std::max(last, activity.end);
    if (activity.step != kAbsent) seen[activity.step] = true;
  }
  study.span = last - first;
  study.steps = std::count(seen.begin(), seen.end(), true);
}

// On the clock of the first rank; begin after end where there is no such step.
TimeInterval window_of_step(const TraceStudy& study, std::int64_t number) {
  TimeInterval window{Nanos{0}, Nanos{-1}};
  for (std::size_t r = 0; r < study.ranks.size(); ++r) {
    const RankStudy& rank = study.ranks[r];
    if (!study.match.aligned[r]) continue;
    for (const std::int32_t i : rank.order.activities) {
      const DeviceActivity& activity = rank.trace->device[i];
      if (activity.step == kAbsent || rank.trace->steps[activity.step].number != number) continue;
      const Nanos start = activity.start + study.match.offset[r], end = activity.end + study.match.offset[r];
      const bool first = window.end < window.begin;
      window = {first ? start : std::min(window.begin, start), first ? end : std::max(window.end, end)};
    }
  }
  return window;
}

}  // namespace

TraceStudy study_ranks(std::vector<StudyInput> inputs, const StudyOptions& options) {
  TraceStudy study;
  study.ranks.resize(inputs.size());
  std::vector<RankCommunications> communications;
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    RankStudy& rank = study.ranks[r];
    rank.trace = inputs[r].trace;
    rank.order = order_device(*rank.trace, std::move(inputs[r].activities));
    rank.communication = communication_table(*rank.trace);
    communications.push_back({rank.trace, &rank.order, &rank.communication});
    measure_span(rank);
  }
  study.match = match_ranks(communications);
  std::vector<std::vector<PeerStart>> peers = late_peers(communications, study.match);
  const std::vector<RankLateness> late = lateness(communications, study.match);
  const DeviceOrder nothing;
  std::vector<PathRank> path_ranks;
  for (std::size_t r = 0; r < study.ranks.size(); ++r) {
    RankStudy& rank = study.ranks[r];
    rank.peers = std::move(peers[r]);
    rank.lateness = late[r];
    const DevicePrecedence precedence(*rank.trace, rank.order);
    rank.exposed = find_exposed(*rank.trace, rank.order, precedence, rank.peers);
    rank.bound = bound_overlap(*rank.trace, rank.order, precedence, rank.exposed);
    // Only bandwidths use this size; who belongs together was decided by what the traces say.
    for (TraceGroup& group : rank.communication.groups) {
      if (group.size == 0) group.size = options.group_size;
    }
    rank.table =
        tabulate_exposure({rank.trace, &rank.order, &rank.communication, &rank.exposed, &rank.bound, &rank.peers});
    // A rank whose clock is not known has no place on a common path.
    path_ranks.push_back(
        {rank.trace, study.match.aligned[r] ? &rank.order : &nothing, &rank.peers, study.match.offset[r]});
  }
  if (options.step) {
    const TimeInterval window = window_of_step(study, *options.step);
    if (window.begin < window.end) study.path = device_critical_path(path_ranks, window.begin, window.end);
  } else {
    study.path = device_critical_path(path_ranks);
  }
  return study;
}

TraceTotals total_operations(const TraceStudy& study) {
  std::vector<TotalsInput> inputs;
  for (const RankStudy& rank : study.ranks) inputs.push_back(rank.totals_input());
  return total_operations(inputs);
}

}  // namespace weft
