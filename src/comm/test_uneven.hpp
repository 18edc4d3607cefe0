// Exchanges of random sizes over any transport, against the definition: each window of each block arrives at its place
// and nothing else is touched.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "comm/communicator.hpp"

namespace weft {

inline constexpr UnevenBlocks kTestBlocks{.blocks = 3, .units = 5, .unit_bytes = 12};

// What rank `from` sends to rank `to` of a block in a round: the same wherever it is asked. Some nothing, some all.
inline ElementRange test_window(std::int64_t round, std::int64_t from, std::int64_t to, std::int64_t block) {
  std::mt19937_64 random(static_cast<std::uint64_t>(((round * 31 + from) * 31 + to) * 31 + block));
  const auto begin = static_cast<std::int64_t>(random() % 6), end = static_cast<std::int64_t>(random() % 6);
  return round == 0 ? ElementRange{} : round == 1 ? ElementRange{0, 5} : ElementRange{begin, end};
}

inline std::byte test_byte(std::int64_t round, std::int64_t from, std::int64_t at) {
  return static_cast<std::byte>((round * 7 + from * 53 + at * 3) % 251);
}

// Where block b of a member lies: in runs of `in_run` blocks, [run][member][block of the run].
inline std::int64_t test_place(std::int64_t member, std::int64_t b, std::int64_t ranks, std::int64_t in_run) {
  return b / in_run * ranks * in_run + member * in_run + b % in_run;
}

// Members are all ranks. There, then back the same way, with what is known from the way there.
inline void check_uneven_exchanges_in_runs(Communicator& communicator, std::int64_t in_run) {
  const std::int64_t ranks = communicator.size(), self = communicator.rank();
  UnevenBlocks shape = kTestBlocks;
  shape.in_run = in_run == shape.blocks ? 0 : in_run;
  PreparedCall call;
  call.spec = {.kind = Collective::all_to_all, .ranks = ranks, .pieces = ranks};
  for (std::int64_t rank = 0; rank < ranks; ++rank) call.members.push_back(rank);
  call.label = "rows";
  call.uneven = shape;
  call.segments = 2;
  Communicator::Prepared& there = communicator.prepare(call);
  call.uneven->known = true;
  Communicator::Prepared& back = communicator.prepare(call);
  const std::int64_t block = shape.units * shape.unit_bytes, bytes = ranks * shape.blocks * block;
  const auto segment = [](auto& vector) {
    return Segment{reinterpret_cast<std::byte*>(vector.data()),
                   static_cast<std::int64_t>(vector.size() * sizeof(vector[0]))};
  };
  for (std::int64_t round = 0; round < 20; ++round) {
    std::vector<std::byte> input(static_cast<std::size_t>(bytes)), output(input.size(), std::byte{0xee}),
        expected = output, returned(input.size(), std::byte{0xdd}), expected_back = returned;
    std::vector<ElementRange> outgoing(static_cast<std::size_t>(ranks * shape.blocks)),
        incoming(outgoing.size(), {-1, -1}), told = outgoing;
    for (std::int64_t at = 0; at < bytes; ++at) input[at] = test_byte(round, self, at);
    for (std::int64_t peer = 0; peer < ranks; ++peer) {
      for (std::int64_t b = 0; b < shape.blocks; ++b) {
        const std::int64_t place = test_place(peer, b, ranks, in_run);
        const ElementRange sent = outgoing[place] = test_window(round, self, peer, b);
        const ElementRange got = told[place] = test_window(round, peer, self, b);
        const std::int64_t here = place * block, at_peer = test_place(self, b, ranks, in_run) * block;
        for (std::int64_t i = got.begin * shape.unit_bytes; i < got.end * shape.unit_bytes; ++i) {
          expected[here + i] = test_byte(round, peer, at_peer + i);
        }
        for (std::int64_t i = sent.begin * shape.unit_bytes; i < sent.end * shape.unit_bytes; ++i) {
          expected_back[here + i] = input[here + i];
        }
      }
    }
    const Segment in[] = {segment(input), segment(outgoing)}, out[] = {segment(output), segment(incoming)};
    communicator.wait(communicator.start(there, in, out));
    ASSERT_EQ(incoming, told) << "round " << round;
    ASSERT_EQ(output, expected) << "round " << round;
    const Segment in_back[] = {segment(output), segment(incoming)}, out_back[] = {segment(returned), segment(outgoing)};
    communicator.wait(communicator.start(back, in_back, out_back));
    ASSERT_EQ(returned, expected_back) << "round " << round;
  }
}

inline void check_uneven_exchanges(Communicator& communicator) {
  for (const std::int64_t in_run : {kTestBlocks.blocks, std::int64_t{1}}) {
    check_uneven_exchanges_in_runs(communicator, in_run);
  }
}

}  // namespace weft
