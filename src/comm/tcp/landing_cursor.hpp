// Where the bytes of a message land, as they come in portions of any length: stored, or reduced with an operand.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "comm/segment_cursor.hpp"
#include "comm/transport.hpp"

namespace weft::tcp {

// Bytes to be reduced pass through this memory, which is small enough to stay in a core's cache and aligned for every
// element.
struct alignas(64) Scratch {
  std::array<std::byte, 128 << 10> bytes;
};

class LandingCursor {
 public:
  LandingCursor() = default;
  explicit LandingCursor(const Landing& landing);

  bool reduces() const { return reduces_; }
  void land(const std::byte* bytes, std::int64_t count, Scratch& scratch);

  // Reads up to `limit` bytes to their destination in three steps: describe, read, then report how many came.
  std::size_t describe(std::span<iovec> entries, std::int64_t limit, Scratch& scratch) const;
  void landed(std::int64_t count, Scratch& scratch);

 private:
  void reduce(std::int64_t count, Scratch& scratch);

  SegmentCursor memory_;
  SegmentCursor operand_;
  bool reduces_ = false;
  ElementType type_ = ElementType::fp32;
  ReduceOp op_ = ReduceOp::sum;
  double scale_ = 1;
  std::int64_t element_ = 1;
  std::array<std::byte, 8> begun_{};  // the first bytes of an element whose rest has not come
  std::int64_t begun_bytes_ = 0;
};

}  // namespace weft::tcp
