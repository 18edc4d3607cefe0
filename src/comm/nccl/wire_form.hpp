// Into which calls of the library a collective is cut. Members must make the same calls, so all that is decided here
// follows from what they have agreed on; where memory lies otherwise than a call wants it, it is copied together.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/nccl/nccl_links.hpp"
#include "comm/segment_map.hpp"

namespace weft {

// A part of a collective's whole buffer: of what every member has before reduce_scatter and after all_gather; of
// all_to_all, a part of every block.
struct WirePiece {
  static constexpr std::int64_t kEveryMember = -1;
  // Whose share it belongs to. kEveryMember: as much of every member's share, one part after the other in memory.
  std::int64_t owner = 0;
  std::int64_t elements = 0;         // of one share
  std::vector<std::int64_t> begins;  // in elements; by member, or the one
  friend bool operator==(const WirePiece&, const WirePiece&) = default;
};
using WireForm = std::vector<WirePiece>;

// What the call alone says: as few pieces as possible.
WireForm plain_form(const PreparedCall& call);
// The one by which this member needs no copies, if there is one and its calls have at least so many bytes in the mean.
WireForm fitting_form(const PreparedCall& call, std::int64_t member, std::span<const Segment> input,
                      std::span<const Segment> output, std::int64_t least_bytes);
std::uint64_t hash_of(const WireForm& form);

// An execution: copies, sums (reduce_scatter that adds to its output: the output goes into this member's own
// contribution), one group of calls, copies.
struct WireCalls {
  std::vector<DeviceCopy> before, after;
  std::vector<DeviceSum> sums;
  std::vector<NcclCall> calls;
  std::int64_t scratch = 0;  // bytes that it needs
};
// `peers`: the number of each member in the communicator. Without `scratch` it only says how much it needs.
WireCalls bind_calls(const PreparedCall& call, std::int64_t member, const WireForm& form, std::span<const int> peers,
                     std::span<const Segment> input, std::span<const Segment> output, std::byte* scratch);

}  // namespace weft
