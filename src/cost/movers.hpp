// Who can move the bytes of a collective between the GPUs of a node, how long that takes, and what it takes from
// compute.
//
// Thread blocks: the kernels of NCCL for symmetric memory (since 2.27). Their time is modelled in NCCL's
// src/sym_kernels.cc:
//   base latency + bytes on the bus / min(blocks x rate of a block x multicast, peak)
// with soft corners, and NCCL takes the fewest blocks that come within 2.5 % of the most. Kernels that multicast
// (all_reduce and reduce_scatter read the sum, all_gather writes to all at once) need few blocks and have at most 16 /
// n on Hopper, 32 / n on Blackwell. Among kernels it takes the least time x (1 + 2.5 % x blocks).
//
// Copy engines: all_gather and all_to_all alone (NCCL since 2.28), without any block: a longer start, which NCCL models
// in src/tuning/ce (17.5 us and 2 us for each rank on Hopper), then bytes at the links' rate.
#pragma once

#include <optional>
#include <string_view>

#include "base/units.hpp"
#include "collective/collective.hpp"

namespace weft {

// Which row of NCCL's tables a GPU has. NCCL has none below Hopper's and uses that.
enum class GpuGeneration : std::uint8_t { ampere, hopper, blackwell };
// Returns nothing for devices that NCCL's symmetric memory is not for.
std::optional<GpuGeneration> gpu_generation(std::string_view device);

// A collective between `ranks` GPUs of a node; `bytes` is the whole buffer.
struct NodeCollective {
  Collective collective = Collective::all_reduce;
  std::int64_t ranks = 2;
  Bytes bytes;
};

struct MoverTime {
  double latency_s = 0, moving_s = 0;
  double seconds() const { return latency_s + moving_s; }
};

struct SymmetricKernel {
  std::int32_t thread_blocks = 0;
  bool multicast = false;
  MoverTime time;
};
// Returns what NCCL chooses; nothing where it has no such kernel.
std::optional<SymmetricKernel> symmetric_kernel(const NodeCollective& what, GpuGeneration generation);
// Returns the time of the fastest kernel with so many blocks at most; nothing where there is none.
std::optional<MoverTime> time_with_blocks(const NodeCollective& what, GpuGeneration generation,
                                          std::int32_t thread_blocks);

// Of a collective that copy engines have a form of (graph/transfer_mover.hpp).
MoverTime copy_engine_time(const NodeCollective& what, GpuGeneration generation);

// Thread blocks that NCCL takes inside a node unless it is told otherwise: 24 channels on A100 and H100 (as the traces
// of all_gathers on 8 H100 show), 16 on Blackwell (NCCL 2.28's notes; 32 before).
std::int32_t library_blocks(GpuGeneration generation);

// What compute is slowed down by beside copies, where no profile says it: an estimate. At NVLink's rate copies read and
// write about a quarter of what the memory carries, and of a step's time about a tenth waits for memory.
inline constexpr double kCopySlowdown = 0.025;

// Returns the slow-down of compute beside a transfer with so many blocks, where the library's own number slows it down
// by `library`: what memory traffic alone does, and the rest in proportion to the units that are taken.
double slowdown_with_blocks(double library, double copies, std::int32_t thread_blocks, std::int32_t of_library);

}  // namespace weft
