// Who kept whom waiting in the collectives that were matched.
#include <algorithm>

#include "timeline/trace/rank_match.hpp"
#include "timeline/trace/transfer_match.hpp"

namespace weft {
namespace {

bool is_own(const RankCommunications& rank) {
  return rank.trace->source == TraceSource::weft;
}

bool is_own_message(const RankCommunications& rank, std::int32_t activity) {
  return is_own(rank) && rank.table->of[activity].op == CollectiveOp::send_recv;
}

// When a member arrived. Kernels of a profiler run while they wait for others; in our own traces a transfer begins on
// all ranks at once, when the last of them is ready.
Nanos arrival(const RankCommunications& rank, std::int32_t activity) {
  const DeviceActivity& own = rank.trace->device[activity];
  return is_own(rank) ? ready_to_begin(own) : own.start;
}

// Calls with the members of each collective whose clocks are known and with the one that arrived last.
template <class Visit>
void for_each_late(const std::vector<RankCommunications>& ranks, const RankMatch& match, Visit visit) {
  const auto start = [&](const CollectiveMember& member) {
    const std::size_t rank = member.rank;
    return arrival(ranks[rank], member.activity) + match.offset[rank];
  };
  for (std::size_t c = 0; c < match.collectives(); ++c) {
    std::vector<CollectiveMember> members;
    for (std::size_t m = match.begin[c]; m < match.begin[c + 1]; ++m) {
      if (match.aligned[match.members[m].rank]) members.push_back(match.members[m]);
    }
    if (members.size() < 2) continue;
    const auto last = std::max_element(members.begin(), members.end(), [&](const auto& a, const auto& b) {
      return start(a) < start(b);  // the first of equals
    });
    visit(members, *last, start(*last));
  }
}

}  // namespace

std::vector<std::vector<PeerStart>> late_peers(const std::vector<RankCommunications>& ranks, const RankMatch& match) {
  std::vector<std::vector<PeerStart>> result(ranks.size());
  for_each_late(ranks, match,
                [&](const std::vector<CollectiveMember>& members, const CollectiveMember& last, Nanos at) {
                  for (const CollectiveMember& member : members) {
                    const std::size_t rank = member.rank;
                    const DeviceActivity& own = ranks[rank].trace->device[member.activity];
                    const Nanos here = std::clamp(at - match.offset[rank], own.start, std::max(own.start, own.end));
                    // Our own traces show no waiting, but the last member decided when the transfer began.
                    if (here > own.start || (is_own(ranks[rank]) && last.rank != member.rank)) {
                      result[rank].push_back({member.activity, last.rank, last.activity, here});
                    }
                  }
                });
  for (std::vector<PeerStart>& peers : result) {
    std::sort(peers.begin(), peers.end(),
              [](const PeerStart& a, const PeerStart& b) { return a.activity < b.activity; });
  }
  return result;
}

std::vector<RankLateness> lateness(const std::vector<RankCommunications>& ranks, const RankMatch& match) {
  std::vector<RankLateness> result(ranks.size());
  for_each_late(
      ranks, match, [&](const std::vector<CollectiveMember>& members, const CollectiveMember& last, Nanos at) {
        RankLateness& cause = result[last.rank];
        ++cause.last;
        // In our own traces a receiver is ready as soon as it has room, which is no wait.
        if (is_own_message(ranks[last.rank], last.activity)) return;
        for (const CollectiveMember& member : members) {
          const std::size_t rank = member.rank;
          const DeviceActivity& own = ranks[rank].trace->device[member.activity];
          const Nanos wait = std::min(at - match.offset[rank], own.end) - arrival(ranks[rank], member.activity);
          if (wait <= Nanos{0}) continue;
          cause.caused += wait;
          result[rank].waited += wait;
        }
      });
  return result;
}

}  // namespace weft
