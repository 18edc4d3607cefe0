// What one kernel of one rank does in a paced collective: plain data that fits into the arguments of a launch.
//
// The kernels of all members meet in memory that all of them see: each says where its buffers are and counts itself in
// when it has arrived, and takes what it needs from the buffers of the others when all have. Then all leave together,
// when the time that the links of a cluster would have taken is over.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/element_type.hpp"
#include "collective/semantics.hpp"
#include "comm/nccl/nccl_links.hpp"

#ifdef __CUDACC__
#define WEFT_HOST_DEVICE __host__ __device__
#else
#define WEFT_HOST_DEVICE
#endif

namespace weft {

inline constexpr int kMaxPacedRanks = 32;
inline constexpr int kMaxPacedCalls = 112;  // with all the rest 4 KiB, which every device takes as arguments

struct PacedCall {
  NcclCall::Kind kind = NcclCall::Kind::all_reduce;
  std::int16_t peer = 0;
  // Where its addresses stand among those of this member; of a receive, where they stand among the sender's.
  std::int16_t entry = 0;
  const std::byte* src = nullptr;
  std::byte* dst = nullptr;
  std::int64_t elements = 0;
};

struct PacedAddresses {
  const std::byte* src = nullptr;
  std::byte* dst = nullptr;
};

// Memory of the device that the members of a communicator share.
struct PacedGroupMemory {
  std::uint64_t arrived = 0;  // counts thread blocks that came to a meeting, of all launches so far
  PacedAddresses published[kMaxPacedRanks][kMaxPacedCalls];
};

// Memory of the host that kernels of all ranks look at.
struct PacedSignals {
  std::uint32_t aborted = 0;     // not 0: all kernels end
  std::uint32_t late_group = 0;  // not 0: in the communicator of this number less one a kernel has waited too long
};

// How long the links take, and which. Links of several collectives at a time are shared in equal parts.
struct Pace {
  std::int64_t latency = 0, moving = 0;    // nanoseconds; `moving` where no other collective uses the links
  std::uint32_t* collectives = nullptr;    // by link: how many use it now
  std::int16_t links[2 * kMaxPacedRanks];  // 2 * rank: what leaves it, 2 * rank + 1: what comes to it
  std::int16_t link_count = 0;
};

struct PacedLaunch {
  ElementType type = ElementType::fp32;
  ReduceOp op = ReduceOp::sum;
  std::int16_t members = 1, self = 0;
  std::int16_t blocks = 1;  // thread blocks of every member
  std::int16_t call_count = 0;
  bool has_second_phase = false;  // there are all_reduces
  bool is_paced = false;          // the first member sees to the time
  std::uint32_t group_number = 0;
  std::uint64_t arrived = 0;      // PacedGroupMemory::arrived when all launches before this one are over
  std::int64_t longest_wait = 0;  // nanoseconds
  PacedGroupMemory* group = nullptr;
  PacedSignals* signals = nullptr;
  Pace pace;
  PacedCall calls[kMaxPacedCalls];

  WEFT_HOST_DEVICE std::uint64_t arrivals_of_meeting() const { return static_cast<std::uint64_t>(members * blocks); }
  WEFT_HOST_DEVICE std::uint64_t arrivals_before_last_meeting() const {
    return arrivals_of_meeting() * (has_second_phase ? 2 : 1);
  }
  // Who sees to the time comes to the last meeting too, and not before the others are over: it would be counted there.
  WEFT_HOST_DEVICE std::uint64_t arrivals() const {
    return arrivals_before_last_meeting() + arrivals_of_meeting() + (is_paced ? 1 : 0);
  }
};
static_assert(sizeof(PacedLaunch) <= 4096);

}  // namespace weft
