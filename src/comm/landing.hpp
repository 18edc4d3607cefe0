// Carries out a landing: bytes that have arrived, in segments, meet the segments that they are for.
#pragma once

#include <span>

#include "comm/segment_cursor.hpp"
#include "comm/transport.hpp"

namespace weft {

// `arrived` and landing.dst (and operand) have the same number of bytes in all, cut anywhere between elements. Goes bit
// by bit where the caller has other things to look after.
class LandingWork {
 public:
  LandingWork() = default;
  LandingWork(std::span<const Segment> arrived, const Landing& landing)
      : landing_(landing), from_(arrived), to_(landing.dst), operand_(landing.operand) {}
  bool done() const { return from_.contiguous() == 0; }
  // About `bytes` more; returns how many it were.
  std::int64_t advance(std::int64_t bytes);

 private:
  Landing landing_;
  SegmentCursor from_, to_, operand_;
};

// All at once.
void land(std::span<const Segment> arrived, const Landing& landing);

}  // namespace weft
