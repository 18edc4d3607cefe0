// A collective written as instructions per rank, as MSCCL interprets them.
//
// A rank runs *blocks* concurrently; a block runs its instructions one after the other. A block may own one outgoing
// and one incoming connection. A connection (source, destination, channel) belongs to one block at each end and is
// first in, first out: its k-th send meets its k-th receive. It has room for at least two messages that are sent and
// not yet received. An instruction also waits for the instructions of other blocks that `after` names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collective/semantics.hpp"

namespace weft {

enum class BufferKind : std::uint8_t { input, output, scratch };
std::string_view name_of(BufferKind buffer);

struct SlotRef {
  BufferKind buffer = BufferKind::input;
  std::int64_t slot = 0;
  friend bool operator==(const SlotRef&, const SlotRef&) = default;
};

enum class InstructionKind : std::uint8_t {
  send,                      // src goes out
  receive,                   // dst = message
  receive_copy_send,         // dst = message, which also goes on
  receive_reduce_send,       // message + src goes on; stored nowhere
  receive_reduce_copy,       // dst = message + src
  receive_reduce_copy_send,  // dst = message + src, which also goes on
  copy,                      // dst = src
  reduce,                    // dst = dst + src
  nop                        // only waits
};
std::string_view name_of(InstructionKind kind);
bool sends(InstructionKind kind);
bool receives(InstructionKind kind);
bool reduces(InstructionKind kind);
bool reads_src(InstructionKind kind);
bool writes_dst(InstructionKind kind);

// An instruction of the same rank.
struct InstructionId {
  std::int32_t block = 0;
  std::int32_t step = 0;
  friend auto operator<=>(const InstructionId&, const InstructionId&) = default;
};

// Works on `count` consecutive slots. src and dst have a meaning only where the kind reads or writes them.
struct Instruction {
  InstructionKind kind = InstructionKind::nop;
  SlotRef src, dst;
  std::int64_t count = 1;
  std::vector<InstructionId> after;  // of other blocks
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct ThreadBlock {
  std::int64_t send_to = -1;       // -1: none
  std::int64_t receive_from = -1;  // -1: none
  std::int64_t channel = 0;
  std::vector<Instruction> steps;
  friend bool operator==(const ThreadBlock&, const ThreadBlock&) = default;
};

struct RankProgram {
  std::int64_t scratch_slots = 0;  // input and output slots follow from the collective
  std::vector<ThreadBlock> blocks;
  friend bool operator==(const RankProgram&, const RankProgram&) = default;
};

struct Program {
  std::string name;  // of the algorithm
  CollectiveSpec spec;
  bool in_place = false;           // input and output are one buffer (collective/semantics.hpp)
  std::vector<RankProgram> ranks;  // spec.ranks members, then helpers (servers) that have scratch only
  friend bool operator==(const Program&, const Program&) = default;
};

// Returns where a named slot lies: in place, a slot of `input` is the corresponding slot of `output`.
SlotRef located(const Program& program, std::int64_t rank, SlotRef slot);
// Returns how many slots a buffer has after `located`: in place, output has all of them and input none.
std::int64_t slot_count(const Program& program, std::int64_t rank, BufferKind buffer);

// "rank 3, block 1, step 4 (receive_reduce_copy)".
std::string where(const Program& program, std::int64_t rank, InstructionId step);

}  // namespace weft
