#include "comm/nccl/round_calls.hpp"

#include <algorithm>

#include "comm/prepared_call.hpp"
#include "comm/segment_cursor.hpp"
#include "comm/segment_map.hpp"

namespace weft {
namespace {

constexpr std::int64_t kScratchAlignment = 256;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

// Where it is asked how much scratch is needed, addresses are only counted with, from here on.
alignas(kScratchAlignment) std::byte nowhere{};

class RoundBinder {
 public:
  RoundBinder(const PreparedCall& call, std::int64_t own_scratch, std::span<const Segment> input,
              std::span<const Segment> output, std::byte* scratch)
      : width_(size_of(call.type).value),
        shared_(aligned(own_scratch)),
        scratch_(scratch != nullptr ? scratch : &nowhere) {
    input_.reserve(std::ssize(input));
    input_.bind(input);
    output_.reserve(std::ssize(output));
    output_.bind(output);
    needed_ = shared_;
  }

  // Of all rounds so far.
  std::int64_t needed() const { return needed_; }

  RoundCalls bind(const ProgramRound& round, std::span<const int> peers) {
    RoundCalls result;
    // Rounds follow each other in a stream, so that each may use this memory.
    std::int64_t shared = shared_;
    std::vector<DeviceCopy> apart;
    for (const RoundMessage& message : round.sends) {
      std::byte* const from = in_one_place(message, shared, [&](const Segment& segment, std::byte* at) {
        result.before.push_back({at, segment.data, segment.bytes});
      });
      result.calls.push_back({NcclCall::Kind::send, from, nullptr, message.bytes / width_, peers[message.peer]});
    }
    for (const RoundMessage& message : round.receives) {
      std::byte* const to = in_one_place(message, shared, [&](const Segment& segment, std::byte* at) {
        apart.push_back({segment.data, at, segment.bytes});
      });
      result.calls.push_back({NcclCall::Kind::receive, nullptr, to, message.bytes / width_, peers[message.peer]});
    }
    if (!apart.empty()) result.work.push_back({std::move(apart), {}, {}});
    for (const std::vector<RoundWork>& list : round.work) {
      DeviceWork& work = result.work.emplace_back();
      for (const RoundWork& each : list) add(each, work);
    }
    return result;
  }

  // The sum of two ranges in the place of the first.
  std::vector<DeviceSum> sum(const ByteRange& to, std::span<const Segment> from) const {
    DeviceWork work;
    const std::vector<Segment> places = segments_of({to});
    add(places, from, places, work.sums);
    return work.sums;
  }

 private:
  std::vector<Segment> segments_of(const std::vector<ByteRange>& ranges) const {
    std::vector<Segment> segments;
    for (const ByteRange& range : ranges) {
      if (range.buffer == BufferKind::scratch) {
        append_joined(segments, {scratch_ + range.begin, range.bytes});
      } else {
        (range.buffer == BufferKind::input ? input_ : output_).append(range.begin, range.bytes, segments);
      }
    }
    return segments;
  }

  // Its own place, or one for all of its segments, between which `copy` is then told to copy.
  template <class Copy>
  std::byte* in_one_place(const RoundMessage& message, std::int64_t& shared, const Copy& copy) {
    const std::vector<Segment> segments = segments_of(message.ranges);
    if (segments.size() == 1) return segments.front().data;
    std::byte* const all = scratch_ + shared;
    std::byte* at = all;
    for (const Segment& segment : segments) {
      copy(segment, at);
      at += segment.bytes;
    }
    shared += aligned(message.bytes);
    needed_ = std::max(needed_, shared);
    return all;
  }

  void add(const RoundWork& each, DeviceWork& work) const {
    const std::vector<Segment> to = segments_of(each.to), from = segments_of(each.from);
    if (!each.operand.empty()) {
      return add(to, from, segments_of(each.operand), each.completes ? work.last_sums : work.sums);
    }
    SegmentCursor into(to), out_of(from);
    while (into.contiguous() > 0) {
      const std::int64_t bytes = std::min(into.contiguous(), out_of.contiguous());
      work.copies.push_back({into.data(), out_of.data(), bytes});
      into.advance(bytes);
      out_of.advance(bytes);
    }
  }

  static void add(std::span<const Segment> to, std::span<const Segment> from, std::span<const Segment> operand,
                  std::vector<DeviceSum>& sums) {
    SegmentCursor into(to), right(from), left(operand);
    while (into.contiguous() > 0) {
      const std::int64_t bytes = std::min({into.contiguous(), left.contiguous(), right.contiguous()});
      sums.push_back({into.data(), left.data(), right.data(), bytes});
      into.advance(bytes);
      left.advance(bytes);
      right.advance(bytes);
    }
  }

  std::int64_t width_;
  std::int64_t shared_;  // where the program's own scratch memory ends
  std::int64_t needed_ = 0;
  std::byte* scratch_;
  SegmentMap input_, output_;
};

}  // namespace

BoundRounds bind_rounds(const PreparedCall& call, std::int64_t member, const RankRounds& rounds,
                        std::span<const int> peers, std::span<const Segment> input, std::span<const Segment> output,
                        std::byte* scratch) {
  RoundBinder binder(call, rounds.scratch_bytes, input, output, scratch);
  BoundRounds bound;
  if (call.accumulate && member < call.spec.ranks) {
    bound.accumulated = binder.sum(own_part_of_input(call, member), output);
  }
  for (const ProgramRound& round : rounds.rounds) bound.rounds.push_back(binder.bind(round, peers));
  bound.scratch = binder.needed();
  return bound;
}

}  // namespace weft
