// A program as rounds, for libraries whose messages only run in groups: all ranks send and receive the messages of a
// round together, and then each copies and reduces in its own memory.
//
// A message and its receive have the same number of a round on both ranks, and every rank goes through its rounds in
// ascending order, so no two ranks wait for each other. A message whose destination is still in use, or that must be
// reduced, lands in scratch memory first.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/lowered.hpp"

namespace weft {

struct RoundMessage {
  std::int64_t peer = 0;  // a rank of the program
  std::vector<ByteRange> ranges;
  std::int64_t bytes = 0;
};

// to = from; with an operand: to = operand and from, reduced.
struct RoundWork {
  std::vector<ByteRange> to, from, operand;
  bool completes = false;  // LoweredStep::completes
};

struct ProgramRound {
  // Messages between two ranks stand in the same order on both.
  std::vector<RoundMessage> sends, receives;
  // What a list does is independent of each other; the lists follow each other.
  std::vector<std::vector<RoundWork>> work;
};

struct RankRounds {
  std::int64_t scratch_bytes = 0;  // the program's own, and what messages land in
  std::vector<ProgramRound> rounds;
};

// `program`: all of its ranks. Messages and work without bytes are left out.
RankRounds rounds_of(const std::vector<LoweredRank>& program, std::int64_t rank);

}  // namespace weft
