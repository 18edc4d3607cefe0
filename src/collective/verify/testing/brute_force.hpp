// Executes programs on real numbers under random timings: what the verifier's answers are held against. It shares no
// code with the verifier.
//
// Blocks take turns by chance. An instruction reads, writes and ends in turns of its own, slot by slot in any order, so
// a send may read its source long after it has begun. Sums are modulo 2^64 over random contributions: one that is
// missing or counts twice shows. What nobody wrote is noise of the state.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collective/verify/finding.hpp"
#include "collective/verify/testing/random.hpp"

namespace weft::testing {

enum class Outcome : std::uint8_t {
  right,
  wrong,      // an output differs from the postcondition, or an input out of place was changed
  stuck,      // no block can go on
  left_over,  // ends right, but a message was never received
  broken      // a slot, peer or step that is not there, or a message of the wrong length
};

// A step that goes on, once it has taken `after_turns`, only when no other step can. Its slots take two turns each: one
// reads, one writes. 0: it does not even begin. Once `until` has ended, it goes before all others.
struct LateStep {
  RankStep step;
  std::int64_t after_turns = 0;
  std::optional<RankStep> until{};
};

struct Timing {
  std::uint64_t seed = 0;
  std::int64_t message_slots = 2;
  std::vector<LateStep> late;  // the first of them goes on first
  // A step that reads or writes noise instead of this slot: shows whether the value matters.
  std::optional<RankStep> garbled;
  SlotRef garbled_slot;
};

class BruteForce {
 public:
  explicit BruteForce(const Program& program);
  Outcome run(const Timing& timing);

 private:
  struct Dependency {
    std::size_t block = 0;
    std::int64_t step = 0;
  };
  struct Step {
    InstructionKind kind = InstructionKind::nop;
    std::int64_t src = 0, dst = 0;  // in memory_
    std::int64_t count = 0;
    std::vector<Dependency> after;
  };
  struct BlockState {                // a block
    std::int64_t in = -1, out = -1;  // connections
    RankStep first;
    std::vector<Step> steps;
    // The state of a state.
    std::size_t next = 0;
    bool begun = false, slow = false;
    std::int64_t turn = 0;  // inside the step: slot by slot, read and write
    std::vector<std::int64_t> slot_order;
    std::vector<std::uint64_t> message, values;
  };
  struct Connection {
    std::vector<std::vector<std::uint64_t>> messages;
    std::size_t received = 0;
    std::int64_t held = 0;  // received, but their slots are not free yet
  };

  void lay_out_memory();
  std::int64_t address(std::int64_t rank, SlotRef first, std::int64_t count);
  void reset(const Timing& timing);
  bool take_turn(Random& random);
  const BlockState* state_of(const RankStep& step) const;
  bool is_urgent(const LateStep& late) const;
  std::size_t late_rank(const BlockState& state) const;
  bool try_block(std::size_t index, Random& random);
  bool can_begin(const BlockState& state) const;
  void begin(BlockState& state, Random& random);
  void move_slot(BlockState& state);
  bool is_garbled(const BlockState& state, std::int64_t at) const;
  bool end(BlockState& state);
  bool has_room(std::int64_t connection) const;
  Outcome outcome() const;

  const Program& program_;
  bool broken_ = false;
  std::vector<std::vector<std::int64_t>> buffer_begin_;  // by rank and buffer, in memory_; and one past the last
  std::vector<std::uint64_t> initial_, memory_;
  std::vector<char> is_set_;
  struct Expected {
    std::int64_t address = 0;
    std::uint64_t value = 0;
  };
  std::vector<Expected> expected_;
  std::vector<BlockState> states_;
  std::vector<Connection> connections_;

  Timing timing_;
  std::int64_t garbled_at_ = -1;
  bool wait_for_room_first_ = false;  // a step that receives and sends: whether it begins only when it can send
  std::int64_t burst_ = 1;
  std::vector<std::size_t> live_;
  std::size_t last_ = 0;
};

}  // namespace weft::testing
