// Writes programs. A generator says which slots travel where, in an executable order; blocks, instructions and their
// dependencies follow from that.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collective/program.hpp"

namespace weft {

// A slot of a rank.
struct Spot {
  std::int64_t rank = 0;
  SlotRef slot;
};

inline Spot input_of(std::int64_t rank, std::int64_t slot) {
  return {rank, {BufferKind::input, slot}};
}
inline Spot output_of(std::int64_t rank, std::int64_t slot) {
  return {rank, {BufferKind::output, slot}};
}
inline Spot scratch_of(std::int64_t rank, std::int64_t slot) {
  return {rank, {BufferKind::scratch, slot}};
}

class ProgramBuilder {
 public:
  // `helpers` ranks beyond the members take part with scratch only.
  ProgramBuilder(std::string name, const CollectiveSpec& spec, bool in_place, std::int64_t helpers = 0);

  const CollectiveSpec& spec() const { return program_.spec; }
  bool in_place() const { return program_.in_place; }
  // Members and helpers.
  std::int64_t rank_count() const { return static_cast<std::int64_t>(program_.ranks.size()); }

  // to = from, over a connection where the ranks differ. A copy of a slot onto itself is left out.
  void copy(Spot from, Spot to, std::int64_t count = 1, std::int64_t channel = 0);
  // to = to + from.
  void reduce(Spot from, Spot to, std::int64_t count = 1, std::int64_t channel = 0);
  // to = from + operand, where operand lies on the rank of `to`: saves the copy of an input that is only read.
  void reduce(Spot from, Spot operand, Spot to, std::int64_t count, std::int64_t channel = 0);

  // While this is on, a rank sends one message at a time in the order in which they are written. Otherwise messages to
  // different peers share the outgoing link.
  void send_in_turn(bool on) { send_in_turn_ = on; }

  // Scratch grows to what was used.
  Program finish() &&;

 private:
  struct Use {
    InstructionId step;
    std::vector<std::int32_t> done;  // by block of the rank: the last step known to have ended before; -1 none
  };
  struct SlotUse {
    std::vector<Use> writers;  // at most one
    std::vector<Use> readers;  // since the last write
  };
  struct RankState {
    std::map<std::pair<std::int64_t, std::int64_t>, std::int32_t> send_blocks, receive_blocks;  // (peer, channel)
    std::int32_t local_block = -1;
    std::map<std::pair<BufferKind, std::int64_t>, SlotUse> uses;
    std::vector<std::vector<std::int32_t>> done;  // by block: the clock after its last step
    std::vector<Use> last_send;                   // written in turn; at most one
  };

  std::int32_t block_for(std::int64_t rank, std::int64_t send_to, std::int64_t receive_from, std::int64_t channel);
  void append(std::int64_t rank, std::int32_t block, Instruction instruction);

  Program program_;
  std::vector<RankState> states_;
  bool send_in_turn_ = false;
};

}  // namespace weft
