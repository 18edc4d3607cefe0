// Executes a transport library's own collective on buffers that may be scattered. Libraries take contiguous buffers
// only, so scattered data is gathered first, in memory that is kept for the next execution.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collective/lowered.hpp"
#include "comm/native_library.hpp"
#include "comm/transport.hpp"

namespace weft {

// Serves all collectives of a queue, which run one after the other.
struct NativeStaging {
  std::vector<std::byte> input, output;
};

class NativeRun {
 public:
  struct Settings {
    ElementType type = ElementType::fp32;
    ReduceOp op = ReduceOp::sum;
    // Whether the calling thread stays in the library until the call ends. Otherwise the library is polled, and other
    // calls continue meanwhile.
    bool blocking = false;
    // The input range to which the output is added before an execution, so that the result includes what the output
    // held.
    std::optional<ByteRange> accumulated = {};
  };

  NativeRun(std::unique_ptr<NativeCollective> collective, const Settings& settings, NativeStaging& staging)
      : collective_(std::move(collective)), settings_(settings), staging_(staging) {}

  bool blocks() const { return settings_.blocking; }
  // The call is in place where both lists name the same memory. They must stay until it is done. The input is
  // overwritten where the output is added to it.
  void start(std::span<const Segment> input, std::span<const Segment> output);
  // Polls the library. Returns true where the call has just ended.
  bool advance();
  bool done() const { return done_; }

 private:
  void add_output_to(std::byte* input) const;
  void finish();

  std::unique_ptr<NativeCollective> collective_;
  Settings settings_;
  NativeStaging& staging_;
  std::span<const Segment> output_;  // filled from the staging memory, if that is used
  bool scattered_output_ = false;
  bool done_ = true;
};

}  // namespace weft
