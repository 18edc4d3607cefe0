// Executes a transport library's own collective on buffers that may lie in several places: libraries know only one, so
// what is scattered is brought together first. The memory for that is kept for the next execution.
#pragma once

#include <cstdint>
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
    // Where the calling thread does nothing else until it is over. Otherwise the library is asked again and again, and
    // other calls go on meanwhile.
    bool blocking = false;
    // Input that the output is added to before an execution, so that the result is added to what the output held.
    std::optional<ByteRange> accumulated = {};
  };

  NativeRun(std::unique_ptr<NativeCollective> collective, const Settings& settings, NativeStaging& staging)
      : collective_(std::move(collective)), settings_(settings), staging_(staging) {}

  bool blocks() const { return settings_.blocking; }
  // In place where both lists name the same memory. They must stay until it is done. The input is used up where the
  // output is added to it.
  void start(std::span<const Segment> input, std::span<const Segment> output);
  // Asks the library. True where it has just ended.
  bool advance();
  bool done() const { return done_; }

 private:
  void add_output_to(std::byte* input) const;
  void finish();

  std::unique_ptr<NativeCollective> collective_;
  Settings settings_;
  NativeStaging& staging_;
  std::span<const Segment> output_;  // to be filled from the staging, where that is used
  bool scattered_output_ = false;
  bool done_ = true;
};

}  // namespace weft
