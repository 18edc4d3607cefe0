// A place in a list of segments that moves forward as bytes are sent or land.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "comm/transport.hpp"

namespace weft {

inline std::int64_t total_bytes(std::span<const Segment> segments) {
  std::int64_t total = 0;
  for (const Segment& segment : segments) total += segment.bytes;
  return total;
}

class SegmentCursor {
 public:
  SegmentCursor() = default;
  explicit SegmentCursor(std::span<const Segment> segments) : segments_(segments) { skip_empty(); }

  // Returns the contiguous bytes at the current position.
  std::byte* data() const { return segments_[index_].data + offset_; }
  std::int64_t contiguous() const { return index_ < segments_.size() ? segments_[index_].bytes - offset_ : 0; }

  void advance(std::int64_t bytes) {
    while (bytes > 0) {
      const std::int64_t here = std::min(bytes, contiguous());
      offset_ += here;
      bytes -= here;
      skip_empty();
    }
  }

  // Describes up to `limit` bytes ahead; returns how many entries it used.
  std::size_t describe(std::span<iovec> entries, std::int64_t limit) const {
    std::size_t used = 0;
    std::size_t index = index_;
    std::int64_t offset = offset_;
    while (used < entries.size() && limit > 0 && index < segments_.size()) {
      const std::int64_t here = std::min(limit, segments_[index].bytes - offset);
      if (here > 0) entries[used++] = {segments_[index].data + offset, static_cast<std::size_t>(here)};
      limit -= here;
      ++index;
      offset = 0;
    }
    return used;
  }

  void copy_in(const std::byte* from, std::int64_t bytes) {
    while (bytes > 0) {
      const std::int64_t here = std::min(bytes, contiguous());
      std::memcpy(data(), from, static_cast<std::size_t>(here));
      from += here;
      bytes -= here;
      advance(here);
    }
  }

  void copy_out(std::byte* to, std::int64_t bytes) {
    while (bytes > 0) {
      const std::int64_t here = std::min(bytes, contiguous());
      std::memcpy(to, data(), static_cast<std::size_t>(here));
      to += here;
      bytes -= here;
      advance(here);
    }
  }

 private:
  void skip_empty() {
    while (index_ < segments_.size() && offset_ == segments_[index_].bytes) {
      ++index_;
      offset_ = 0;
    }
  }

  std::span<const Segment> segments_;
  std::size_t index_ = 0;
  std::int64_t offset_ = 0;
};

}  // namespace weft
