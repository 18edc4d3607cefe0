#include "comm/native_run.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "comm/reduce_kernels.hpp"
#include "comm/segment_cursor.hpp"

namespace weft {
namespace {

bool same_memory(std::span<const Segment> a, std::span<const Segment> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Segment& x, const Segment& y) { return x.data == y.data; });
}

std::byte* only_place(std::span<const Segment> segments) {
  return segments.empty() ? nullptr : segments.front().data;
}

std::byte* room_for(std::span<const Segment> segments, std::vector<std::byte>& whole) {
  const auto bytes = static_cast<std::size_t>(total_bytes(segments));
  if (whole.size() < bytes) whole.resize(bytes);
  return whole.data();
}

}  // namespace

void NativeRun::start(std::span<const Segment> input, std::span<const Segment> output) {
  WEFT_CHECK(done_);
  done_ = false;
  const bool in_place = same_memory(input, output);
  output_ = output;
  scattered_output_ = output.size() > 1;
  std::byte* const to = scattered_output_ ? room_for(output, staging_.output) : only_place(output);
  std::byte* from = only_place(input);
  if (in_place) {
    from = to;
    if (scattered_output_) SegmentCursor(output).copy_out(to, total_bytes(output));
  } else if (input.size() > 1) {
    from = room_for(input, staging_.input);
    SegmentCursor(input).copy_out(from, total_bytes(input));
  }
  if (settings_.accumulated) add_output_to(from);
  if (settings_.blocking) {
    collective_->run(from, to);
    finish();
  } else {
    collective_->start(from, to);
  }
}

bool NativeRun::advance() {
  if (done_ || !collective_->done()) return false;
  finish();
  return true;
}

void NativeRun::add_output_to(std::byte* input) const {
  std::byte* at = input + settings_.accumulated->begin;
  const std::int64_t width = size_of(settings_.type).value;
  for (const Segment& segment : output_) {
    if (segment.bytes == 0) continue;
    reduce_into(settings_.type, settings_.op, at, at, segment.data, segment.bytes / width);
    at += segment.bytes;
  }
}

void NativeRun::finish() {
  if (scattered_output_) SegmentCursor(output_).copy_in(staging_.output.data(), total_bytes(output_));
  done_ = true;
}

}  // namespace weft
