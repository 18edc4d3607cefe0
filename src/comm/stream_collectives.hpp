// Collectives that devices carry out between each other in their streams, such as NCCL's. One object per rank; the host
// only enqueues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace weft {

class StreamCollectives {
 public:
  virtual ~StreamCollectives() = default;
  // All members prepare the same calls in the same order; calls of one queue (PreparedCall::queue) run in one stream.
  // Programs, uneven exchanges and `on_done` are not for streams. Returns its number. Throws Error where the library
  // has no way to carry it out.
  virtual std::size_t prepare(const PreparedCall& call) = 0;
  // Enqueues it in `stream`, the library's own name of one (Accelerator::native). Segments as Communicator::start has them.
  virtual void start(std::size_t prepared, std::span<const Segment> input, std::span<const Segment> output,
                     void* stream) = 0;
  // What has gone wrong since (a lost rank, a broken link), in words; empty: nothing. From any thread.
  virtual std::string failure() = 0;
  // Ends whatever runs, so that no stream waits for ever for a rank that is gone. From any thread.
  virtual void abort() = 0;
};

// How ranks find each other: fills `bytes`, the same on all ranks, with those of rank 0.
using ShareBytes = std::function<void(std::span<std::byte> bytes)>;
struct NcclOptions {
  std::int64_t rank = 0, ranks = 1;
  int max_ctas = 0;  // thread blocks of a collective; 0: NCCL chooses
};
// Throws Error where NCCL is missing or another version than it was built for. `share` is called on all ranks alike.
std::unique_ptr<StreamCollectives> make_nccl_collectives(const NcclOptions& options, const ShareBytes& share);

}  // namespace weft
