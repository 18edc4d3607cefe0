// A buffer in several segments: finds the memory of any byte range.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.hpp"
#include "comm/transport.hpp"

namespace weft {

// Adds memory to a list, joining it with the last entry where they are adjacent.
inline void append_joined(std::vector<Segment>& list, const Segment& segment) {
  if (!list.empty() && list.back().data + list.back().bytes == segment.data) {
    list.back().bytes += segment.bytes;
  } else {
    list.push_back(segment);
  }
}

class SegmentMap {
 public:
  // Room for so many segments.
  void reserve(std::int64_t segments) { begins_.reserve(segments); }

  // The segments must stay. Allocates nothing up to what was reserved.
  void bind(std::span<const Segment> segments) {
    WEFT_CHECK(segments.size() <= begins_.capacity());
    segments_ = segments;
    begins_.clear();
    bytes_ = 0;
    for (const Segment& segment : segments) {
      begins_.push_back(bytes_);
      bytes_ += segment.bytes;
    }
  }

  std::int64_t bytes() const { return bytes_; }

  void append(std::int64_t begin, std::int64_t bytes, std::vector<Segment>& to) const {
    WEFT_CHECK(begin >= 0 && bytes >= 0 && begin + bytes <= bytes_);
    if (bytes == 0) return;
    // The last that begins there or before: of several that begin there, the others are empty.
    auto index =
        static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), begin) - begins_.begin() - 1);
    std::int64_t offset = begin - begins_[index];
    for (; bytes > 0; ++index, offset = 0) {
      const std::int64_t here = std::min(bytes, segments_[index].bytes - offset);
      if (here > 0) append_joined(to, {segments_[index].data + offset, here});
      bytes -= here;
    }
  }

 private:
  std::span<const Segment> segments_;
  std::vector<std::int64_t> begins_;
  std::int64_t bytes_ = 0;
};

}  // namespace weft
