// Matches the communications of several ranks, and finds how far their clocks are apart and who came late.
//
// Collectives of a group run in one order on all members: the n-th of one rank is the n-th of another, or they carry
// the group's sequence number. All members end a collective at about the same time, which gives the difference of their
// clocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "timeline/trace/communication_facts.hpp"
#include "timeline/trace/device_order.hpp"
#include "timeline/trace/exposed_communication.hpp"

namespace weft {

// One rank's view.
struct RankCommunications {
  const DeviceTrace* trace = nullptr;
  const DeviceOrder* order = nullptr;
  const CommunicationTable* table = nullptr;
};

struct CollectiveMember {
  std::int32_t rank = 0;      // index into the ranks given
  std::int32_t activity = 0;  // index into its DeviceTrace::device
};

struct RankLateness {
  std::int64_t last = 0;  // collectives that it began last of all
  Nanos caused;           // time that others waited for it, all together
  Nanos waited;           // time that it waited for others
};

struct RankMatch {
  // Offsets that give the times of all ranks one clock; 0 for the first.
  std::vector<Nanos> offset;
  std::vector<bool> aligned;              // whether a common collective tells; the first always
  std::vector<CollectiveMember> members;  // of collective i: members[begin[i] .. begin[i + 1])
  std::vector<std::size_t> begin;
  std::int64_t unmatched = 0;  // communications of groups that several ranks have, without a counterpart
  std::vector<std::string> remarks;

  std::size_t collectives() const { return begin.empty() ? 0 : begin.size() - 1; }
};

// O(n log n) in the communications.
RankMatch match_ranks(const std::vector<RankCommunications>& ranks);

// Of every rank: the collectives that another one began later; by activity.
std::vector<std::vector<PeerStart>> late_peers(const std::vector<RankCommunications>& ranks, const RankMatch& match);
std::vector<RankLateness> lateness(const std::vector<RankCommunications>& ranks, const RankMatch& match);

}  // namespace weft
