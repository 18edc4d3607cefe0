// Stores or reduces bytes that have arrived in one list of segments into the segments that they are for.
#pragma once

#include <span>

#include "comm/segment_cursor.hpp"
#include "comm/transport.hpp"

namespace weft {

// `arrived`, landing.dst and the operand have the same number of bytes in all; their segments may be cut at any
// element. The work can be done in small portions, so that the caller can look after other things in between.
class LandingWork {
 public:
  LandingWork() = default;
  LandingWork(std::span<const Segment> arrived, const Landing& landing)
      : landing_(landing), from_(arrived), to_(landing.dst), operand_(landing.operand) {}
  bool done() const { return from_.contiguous() == 0; }
  // Does about `bytes` more and returns how many it did.
  std::int64_t advance(std::int64_t bytes);

 private:
  Landing landing_;
  SegmentCursor from_, to_, operand_;
};

// Does all of it at once.
void land(std::span<const Segment> arrived, const Landing& landing);

}  // namespace weft
