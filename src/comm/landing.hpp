// Carries out a landing: bytes that have arrived, in segments, meet the segments that they are for.
#pragma once

#include <span>

#include "comm/transport.hpp"

namespace weft {

// Walks a row of segments.
class SegmentWalk {
 public:
  SegmentWalk() = default;
  explicit SegmentWalk(std::span<const Segment> row) : row_(row) { skip_empty(); }
  bool at_end() const { return next_ == row_.size(); }
  std::int64_t left() const { return row_[next_].bytes - within_; }  // of this segment
  std::byte* here() const { return row_[next_].data + within_; }
  void advance(std::int64_t bytes) {
    within_ += bytes;
    if (within_ < row_[next_].bytes) return;
    ++next_;
    within_ = 0;
    skip_empty();
  }

 private:
  void skip_empty() {
    while (next_ < row_.size() && row_[next_].bytes == 0) ++next_;
  }
  std::span<const Segment> row_;
  std::size_t next_ = 0;
  std::int64_t within_ = 0;
};

// `arrived` and landing.dst (and operand) have the same number of bytes in all, cut anywhere between elements. Goes bit
// by bit where the caller has other things to look after.
class LandingWork {
 public:
  LandingWork() = default;
  LandingWork(std::span<const Segment> arrived, const Landing& landing)
      : landing_(landing), from_(arrived), to_(landing.dst), operand_(landing.operand) {}
  bool done() const { return from_.at_end(); }
  // About `bytes` more.
  void advance(std::int64_t bytes);

 private:
  Landing landing_;
  SegmentWalk from_, to_, operand_;
};

// All at once.
void land(std::span<const Segment> arrived, const Landing& landing);

}  // namespace weft
