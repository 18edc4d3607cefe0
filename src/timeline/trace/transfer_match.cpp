#include "timeline/trace/transfer_match.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

namespace weft {

RankMatch match_transfers(const std::vector<RankCommunications>& ranks) {
  // File, iteration and number of the transfer.
  std::map<std::tuple<std::string, std::int64_t, std::int64_t>, std::vector<CollectiveMember>> transfers;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const DeviceTrace& trace = *ranks[r].trace;
    for (const std::int32_t i : ranks[r].order->activities) {
      const DeviceActivity& activity = trace.device[i];
      const std::int64_t number = ranks[r].table->of[i].sequence;
      if (activity.kind != KernelKind::communication || number < 0 || activity.step == kAbsent) continue;
      const std::int64_t iteration = trace.steps[activity.step].number;
      transfers[{trace.file, iteration, number}].push_back({static_cast<std::int32_t>(r), i});
    }
  }
  RankMatch match;
  match.offset.resize(ranks.size());
  match.aligned.assign(ranks.size(), true);
  match.begin.push_back(0);
  for (const auto& [key, members] : transfers) {
    if (members.size() < 2) {
      ++match.unmatched;
      continue;
    }
    match.members.insert(match.members.end(), members.begin(), members.end());
    match.begin.push_back(match.members.size());
  }
  return match;
}

Nanos ready_to_begin(const DeviceActivity& activity) {
  const Nanos ready = std::max(activity.issued, activity.ready);
  return ready == kNoTime ? activity.start : ready;
}

}  // namespace weft
