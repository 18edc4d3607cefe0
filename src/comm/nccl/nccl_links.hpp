// What one rank needs of NCCL and of its device, as plain calls. The module that links NCCL implements it, and so does
// comm/paced_device, which emulates it on one GPU; tests do so in the memory of the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collective/semantics.hpp"
#include "comm/stream_collectives.hpp"

namespace weft {

// A call of the library. Elements are those of one rank's part where the buffer is divided among the ranks.
struct NcclCall {
  enum class Kind : std::uint8_t { all_reduce, all_gather, reduce_scatter, broadcast, reduce, send, receive };
  Kind kind = Kind::all_reduce;
  const std::byte* src = nullptr;
  std::byte* dst = nullptr;
  std::int64_t elements = 0;
  int peer = 0;  // of broadcast and reduce: the root; of send and receive: the other. Counted in the communicator.
};

// Bytes of the device that are copied to another place of it.
struct DeviceCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  std::int64_t bytes = 0;
};

// Elements of the device that are reduced with others; `to` may be one of both.
struct DeviceSum {
  std::byte* to = nullptr;
  const std::byte *left = nullptr, *right = nullptr;
  std::int64_t bytes = 0;
};

// What a reduction of two elements is: reduce_into() of comm/reduce_kernels.hpp with a scale of 1 / divisor.
struct DeviceReduction {
  ElementType type = ElementType::fp32;
  ReduceOp op = ReduceOp::sum;
  std::int64_t divisor = 1;
};

class NcclLinks {
 public:
  virtual ~NcclLinks() = default;

  virtual std::string version() = 0;  // the library's: "2.28.9"
  // The identity of a new world, which rank 0 makes and tells all; then all join it.
  virtual std::string make_identity() = 0;
  virtual void join(const std::string& identity) = 0;
  // All ranks, in the same order: those with the same color (-1: none) share a communicator, which has its members in
  // the order of `position` and works with so many thread blocks (0: the library chooses). Returns its number, or -1.
  // `words` names it where something fails.
  virtual std::int64_t split(int color, int position, int thread_blocks, const std::string& words) = 0;
  // All members: connects each with each for send and receive, which the library would do at the first message. A host
  // that waits there for a peer, while the peer waits for it in another communicator, would wait for ever.
  virtual void connect_pairs(std::int64_t communicator, int members) = 0;

  // Zeros or not. Freed at the end.
  virtual std::byte* allocate(std::int64_t bytes) = 0;
  virtual void copy(std::span<const DeviceCopy> copies, void* stream) = 0;
  virtual void reduce(const DeviceReduction& how, std::span<const DeviceSum> sums, void* stream) = 0;
  // Calls of an execution of `call`, as one group; a member may have none. Returns when it is in the stream.
  virtual void run(std::int64_t communicator, const PreparedCall& call, std::span<const NcclCall> calls,
                   void* stream) = 0;

  // Of the calls of one group in the mean: pieces with less are copied together first.
  virtual std::int64_t least_bytes_of_a_call() const = 0;
  // Those of StreamCollectives.
  virtual bool needs_rehearsal() const = 0;
  virtual bool can_be_recorded() const = 0;
  virtual std::string failure() = 0;
  virtual void abort(const std::string& why) = 0;
};

// extern "C" NcclLinks* weft_make_nccl_links(const NcclOptions&): the caller owns it. Throws Error.
inline constexpr const char* kNcclLinksSymbol = "weft_make_nccl_links";
using MakeNcclLinks = NcclLinks* (*)(const NcclOptions&);

}  // namespace weft
