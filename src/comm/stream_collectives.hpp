// Collectives that devices carry out between each other in their streams, such as NCCL's. One object per rank; the host
// only enqueues.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "comm/communicator.hpp"
#include "comm/exchange.hpp"

namespace weft {

class StreamCollectives {
 public:
  virtual ~StreamCollectives() = default;
  // Notes a call and returns its number. All members prepare the same calls of a queue (PreparedCall::queue) in the
  // same order; calls of one queue run in one stream. `input` and `output` are what start() gets later, or lie as that
  // does: where all members cut their buffers alike, the library works on them as they are, otherwise what it cannot
  // take is copied together first. A program's messages go in groups, each followed by kernels that copy and reduce.
  // Uneven exchanges and `on_done` are not for streams. Throws Error where the library has no way to carry it out.
  virtual std::size_t prepare(const PreparedCall& call, std::span<const Segment> input,
                              std::span<const Segment> output) = 0;
  // All ranks, when all have prepared their calls: members find each other, and compare what they prepared since the
  // last time. Throws RunFailed where that differs. Those that have found each other before use the same way again.
  virtual void connect() = 0;
  // Whether its kernels wait for those of other ranks of this process. A host that loads a kernel, takes memory or
  // finds a stream full may have to wait for the whole device, and so for ever: all of that was done before the first
  // start(), and no more is enqueued than streams take.
  virtual bool needs_rehearsal() const = 0;
  // Whether calls may be started while the device records them (kernels/call_recorder.hpp).
  virtual bool can_be_recorded() const = 0;
  // Enqueues it in `stream`, the library's own name of one (Accelerator::native). In place where both lists name the
  // same memory. Returns when all of it is in the stream.
  virtual void start(std::size_t prepared, std::span<const Segment> input, std::span<const Segment> output,
                     void* stream) = 0;
  // What has gone wrong since (a lost rank, a broken link), in words; empty: nothing. From any thread.
  virtual std::string failure() = 0;
  // Ends whatever runs, so that no stream waits for ever for a rank that is gone. From any thread. Ranks of this
  // process whose collectives it ends too say `why`.
  virtual void abort(const std::string& why) = 0;
};

struct NcclOptions {
  std::int64_t rank = 0, ranks = 1;
  int device = 0;                    // of several in this machine
  std::chrono::seconds timeout{60};  // for all ranks to connect, and for a call to be enqueued
};
// Throws Error where NCCL is missing or another version than it was built for. `exchange` is called here and by
// connect(), on all ranks alike.
std::unique_ptr<StreamCollectives> make_nccl_collectives(const NcclOptions& options, Exchange exchange);

}  // namespace weft
