// The rounds of a program on the memory of one execution: calls of the library, and copies and sums around them.
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/nccl/nccl_links.hpp"
#include "comm/nccl/program_rounds.hpp"

namespace weft {

// Copies and sums that may run at the same time.
struct DeviceWork {
  std::vector<DeviceCopy> copies;
  std::vector<DeviceSum> sums, last_sums;  // last: to be divided by the ranks where the call averages
  bool empty() const { return copies.empty() && sums.empty() && last_sums.empty(); }
};

struct RoundCalls {
  std::vector<DeviceCopy> before;  // what is sent from several places, put together
  std::vector<NcclCall> calls;     // one group
  std::vector<DeviceWork> work;    // one after the other
};

struct BoundRounds {
  std::vector<DeviceSum> accumulated;  // first of all: the output added to this member's own contribution
  std::vector<RoundCalls> rounds;
  std::int64_t scratch = 0;  // bytes that it needs
};
// `peers`: the number of each rank of the program in the communicator. Without `scratch` it only says how much it
// needs.
BoundRounds bind_rounds(const PreparedCall& call, std::int64_t member, const RankRounds& rounds,
                        std::span<const int> peers, std::span<const Segment> input, std::span<const Segment> output,
                        std::byte* scratch);

}  // namespace weft
