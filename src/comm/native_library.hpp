// Collectives that the library beneath a transport brings along, such as MPI_Allreduce.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collective/semantics.hpp"

namespace weft {

// A library's collective, which the communication thread can call repeatedly. It works in place where input == output.
class NativeCollective {
 public:
  virtual ~NativeCollective() = default;
  virtual void run(const std::byte* input, std::byte* output) = 0;  // blocks
  // Starts the call; the library makes progress while it is asked whether it is done. The memory must stay until then.
  virtual void start(const std::byte* input, std::byte* output) = 0;
  virtual bool done() = 0;
};

struct NativeRequest {
  CollectiveSpec spec;
  ElementType type = ElementType::fp32;
  ReduceOp op = ReduceOp::sum;
  std::vector<std::int64_t> members;  // ranks of the transport, in the order of the collective
  std::vector<std::int64_t> sizes;    // elements by piece (collective/piece_sizes.hpp)
  // All members start the collectives of a queue in the same order, each after the one before has ended. Those of
  // different queues may start in any order.
  std::int64_t queue = 0;
};

class NativeLibrary {
 public:
  // Null where the library has no such call. All members must ask in the same order, on their communication threads.
  virtual std::unique_ptr<NativeCollective> prepare(const NativeRequest& request) = 0;

 protected:
  ~NativeLibrary() = default;
};

}  // namespace weft
