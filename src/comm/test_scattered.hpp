// Buffers in many places for tests: cut at random between elements, some cuts empty, the places in no order and with
// guards between them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "collective/algorithms.hpp"
#include "comm/communicator.hpp"
#include "comm/naive_collective.hpp"

namespace weft {

class ScatteredBuffer {
 public:
  ScatteredBuffer(std::int64_t elements, std::int64_t element_bytes, std::int64_t segments, std::mt19937& random)
      : memory_(static_cast<std::size_t>(elements * element_bytes + (segments + 1) * kGuard), kGuardByte) {
    std::vector<std::int64_t> cuts = {0, elements};
    while (std::ssize(cuts) <= segments) {
      // A third repeats a cut, which leaves an empty segment.
      cuts.push_back(random() % 3 == 0
                         ? cuts[random() % cuts.size()]
                         : static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(elements + 1)));
    }
    std::sort(cuts.begin(), cuts.end());
    segments_.resize(segments);
    std::vector<std::size_t> places(segments_.size());
    std::iota(places.begin(), places.end(), 0);
    std::shuffle(places.begin(), places.end(), random);
    std::byte* place = memory_.data() + kGuard;
    for (const std::size_t i : places) {
      segments_[i] = {place, (cuts[i + 1] - cuts[i]) * element_bytes};
      place += segments_[i].bytes + kGuard;
    }
  }

  const std::vector<Segment>& segments() const { return segments_; }

  void store(const std::vector<std::byte>& bytes, std::size_t begin = 0) {
    std::size_t at = 0, from = 0;
    for (const Segment& segment : segments_) {
      for (std::int64_t i = 0; i < segment.bytes; ++i, ++at) {
        if (at >= begin && from < bytes.size()) segment.data[i] = bytes[from++];
      }
    }
  }

  std::vector<std::byte> load() const {
    std::vector<std::byte> bytes;
    for (const Segment& segment : segments_) bytes.insert(bytes.end(), segment.data, segment.data + segment.bytes);
    return bytes;
  }

  // Whether nothing was written beside the segments.
  bool guards_are_whole() const {
    std::vector<bool> inside(memory_.size(), false);
    for (const Segment& segment : segments_) {
      const std::ptrdiff_t begin = segment.data - memory_.data();
      std::fill_n(inside.begin() + begin, segment.bytes, true);
    }
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      if (!inside[i] && memory_[i] != kGuardByte) return false;
    }
    return true;
  }

 private:
  static constexpr std::int64_t kGuard = 16;
  static constexpr std::byte kGuardByte{0xa5};
  std::vector<std::byte> memory_;
  std::vector<Segment> segments_;
};

inline std::size_t slots_bytes(const PreparedCall& call, std::int64_t slots) {
  const auto end = call.sizes.begin() + slots;
  return static_cast<std::size_t>(std::accumulate(call.sizes.begin(), end, std::int64_t{0}) * size_of(call.type).value);
}

// A collective on scattered buffers against the definition, three times with other cuts. Members are ranks 0, 1, ...
inline void check_scattered(Communicator& communicator, PreparedCall call, std::uint32_t seed) {
  const std::int64_t rank = communicator.rank();
  std::mt19937 random(seed * 101 + static_cast<std::uint32_t>(rank));  // ranks cut differently
  call.segments = 9;
  Communicator::Prepared& prepared = communicator.prepare(call);
  const std::vector<std::byte> values = input_bytes(call.spec, call.sizes, call.type, rank);
  const std::vector<std::byte> expected = expected_bytes(call.spec, call.sizes, call.type, call.op, rank);
  const bool in_place = call.program != nullptr && call.program->in_place;
  const std::int64_t width = size_of(call.type).value;
  const auto elements = [&](std::size_t bytes) { return static_cast<std::int64_t>(bytes) / width; };
  for (const std::int64_t segments : {1, 9, 5}) {
    ScatteredBuffer input(elements(values.size()), width, segments, random);
    ScatteredBuffer output(elements(in_place ? std::max(values.size(), expected.size()) : expected.size()), width,
                           10 - segments, random);
    std::size_t begin = 0;
    input.store(values);
    if (in_place) {
      output.store(values, slots_bytes(call, in_place_slot_of_input(call.spec, rank, 0)));
      begin = slots_bytes(call, in_place_slot_of_output(call.spec, rank, 0));
    }
    communicator.wait(communicator.start(prepared, input.segments(), output.segments()));
    std::vector<std::byte> got = output.load();
    got = {got.begin() + static_cast<std::ptrdiff_t>(begin),
           got.begin() + static_cast<std::ptrdiff_t>(begin + expected.size())};
    ASSERT_EQ(got, expected) << name_of(call.spec.kind) << " "
                             << (call.program != nullptr ? call.program->name : "native") << " rank " << rank << " of "
                             << call.spec.ranks << ", " << call.sizes.size() << " pieces, " << name_of(call.type)
                             << (in_place ? " in place" : "") << ", seed " << seed;
    ASSERT_TRUE(output.guards_are_whole() && input.guards_are_whole());
  }
}

// Every algorithm of every collective of this many ranks: whole elements that neither ranks nor parts divide.
inline std::vector<PreparedCall> every_call(std::int64_t ranks, const std::vector<std::int64_t>& sizes) {
  std::vector<PreparedCall> calls;
  for (int kind = 0; kind <= static_cast<int>(Collective::barrier); ++kind) {
    for (const Algorithm algorithm : algorithms_for(static_cast<Collective>(kind))) {
      if (static_cast<Collective>(kind) == Collective::send_recv && ranks != 2) continue;
      for (const bool in_place : {false, true}) {
        if (in_place && static_cast<Collective>(kind) == Collective::all_to_all) continue;
        ProgramRequest request{
            .algorithm = algorithm, .kind = static_cast<Collective>(kind), .ranks = ranks, .root = ranks / 2};
        if (algorithm == Algorithm::hierarchical) request.inner = ranks % 4 == 0 ? 2 : ranks;
        request.in_place = in_place;
        request.parts = in_place ? 1 : 3;
        for (const std::int64_t elements : sizes) {
          PreparedCall call;
          call.program = std::make_shared<const Program>(make_program(request));
          call.spec = call.program->spec;
          call.sizes = even_sizes(call.spec, elements);
          call.type = in_place ? ElementType::bf16 : ElementType::fp32;
          for (std::int64_t rank = 0; rank < std::ssize(call.program->ranks); ++rank) call.members.push_back(rank);
          calls.push_back(call);
        }
      }
    }
  }
  return calls;
}

}  // namespace weft
