#include "collective/verify/structure.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "base/enum_name.hpp"
#include "base/error.hpp"

namespace weft {
namespace {

// Thrown inside the check, caught at its edge.
struct Refused {
  Finding finding;
};

template <class... Args>
[[noreturn]] void refuse(std::vector<RankStep> steps, fmt::format_string<Args...> format, Args&&... args) {
  throw Refused{{ProgramRule::structure, fmt::format(format, std::forward<Args>(args)...), std::move(steps), {}}};
}

class StructureCheck {
 public:
  explicit StructureCheck(const Program& program) : program_(program) {}

  void run() {
    check_spec();
    check_sizes();
    for (std::size_t rank = 0; rank < program_.ranks.size(); ++rank) check_rank(static_cast<std::int64_t>(rank));
  }

 private:
  void check_spec() const {
    const CollectiveSpec& spec = program_.spec;
    if (spec.ranks > kMaxProgramRanks || spec.pieces > kMaxProgramSlots) {
      refuse({}, "the program has {} ranks and {} pieces; at most {} and {} are allowed", spec.ranks, spec.pieces,
             kMaxProgramRanks, kMaxProgramSlots);
    }
    try {
      validate(spec, "the collective");
    } catch (const Error& error) {
      refuse({}, "{}", error.what());
    }
    const auto ranks = static_cast<std::int64_t>(program_.ranks.size());
    if (ranks < spec.ranks) refuse({}, "the program has code for {} ranks, the collective has {}", ranks, spec.ranks);
    if (ranks > kMaxProgramRanks) {
      refuse({}, "the program has {} ranks; at most {} are allowed", ranks, kMaxProgramRanks);
    }
  }

  void check_sizes() const {
    std::int64_t slots = 0;
    std::int64_t moves = 0;
    for (std::size_t rank = 0; rank < program_.ranks.size(); ++rank) {
      const std::int64_t scratch = program_.ranks[rank].scratch_slots;
      if (scratch < 0 || scratch > kMaxProgramSlots) {
        refuse({}, "rank {}: {} scratch slots; 0..{} are allowed", rank, scratch, kMaxProgramSlots);
      }
      const auto r = static_cast<std::int64_t>(rank);
      slots += scratch + input_slots(program_.spec, r) + output_slots(program_.spec, r);
      for (const ThreadBlock& block : program_.ranks[rank].blocks)
        moves += 1 + static_cast<std::int64_t>(block.steps.size());
    }
    if (slots > kMaxProgramSlots) refuse({}, "{} slots in all ranks; at most {} are allowed", slots, kMaxProgramSlots);
    if (moves > kMaxProgramMoves) refuse({}, "{} instructions; at most {} are allowed", moves, kMaxProgramMoves);
  }

  void check_rank(std::int64_t rank) {
    const std::vector<ThreadBlock>& blocks = program_.ranks[rank].blocks;
    std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> senders, receivers;  // (peer, channel) -> block
    for (std::size_t block = 0; block < blocks.size(); ++block) {
      check_connections(rank, block, blocks[block]);
      own("sends to", rank, block, {blocks[block].send_to, blocks[block].channel}, senders);
      own("receives from", rank, block, {blocks[block].receive_from, blocks[block].channel}, receivers);
      for (std::size_t step = 0; step < blocks[block].steps.size(); ++step) {
        check_step({rank, {static_cast<std::int32_t>(block), static_cast<std::int32_t>(step)}});
      }
    }
  }

  void check_connections(std::int64_t rank, std::size_t index, const ThreadBlock& block) const {
    const auto last = static_cast<std::int64_t>(program_.ranks.size()) - 1;
    for (const std::int64_t peer : {block.send_to, block.receive_from}) {
      if (peer == rank) refuse({}, "rank {}, block {}: is connected to its own rank", rank, index);
      if (peer < -1 || peer > last) refuse({}, "rank {}, block {}: peer {} is not in 0..{}", rank, index, peer, last);
    }
    if (block.channel < 0 || block.channel >= kMaxChannels) {
      refuse({}, "rank {}, block {}: channel {} is not in 0..{}", rank, index, block.channel, kMaxChannels - 1);
    }
  }

  static void own(std::string_view verb, std::int64_t rank, std::size_t block,
                  std::pair<std::int64_t, std::int64_t> connection,
                  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t>& owners) {
    if (connection.first < 0) return;
    const auto [owner, is_new] = owners.try_emplace(connection, block);
    if (is_new) return;
    refuse({}, "rank {}, blocks {} and {}: each {} rank {} over channel {}; a connection belongs to one block", rank,
           owner->second, block, verb, connection.first, connection.second);
  }

  void check_step(const RankStep& at) {
    const RankProgram& code = program_.ranks[at.rank];
    const ThreadBlock& block = code.blocks[at.step.block];
    const Instruction& step = block.steps[at.step.step];
    if (step.kind > InstructionKind::nop) {
      refuse({}, "rank {}, block {}, step {}: there is no such kind of instruction", at.rank, at.step.block,
             at.step.step);
    }
    if (sends(step.kind) && block.send_to < 0) refuse({at}, "{}: its block sends to nobody", name(at));
    if (receives(step.kind) && block.receive_from < 0) refuse({at}, "{}: its block receives from nobody", name(at));
    for (const InstructionId& other : step.after) check_dependency(at, other);
    if (step.kind == InstructionKind::nop) return;
    if (step.count < 1) refuse({at}, "{}: works on {} slots; at least 1 is needed", name(at), step.count);
    if (reads_src(step.kind)) check_range(at, "reads", step.src, step.count);
    if (writes_dst(step.kind)) check_range(at, "writes", step.dst, step.count);
    if (writes_dst(step.kind) && step.dst.buffer == BufferKind::input && !program_.in_place) {
      refuse({at}, "{}: writes input slot {}; out of place the input must stay as it is", name(at), step.dst.slot);
    }
    moves_ += step.count;
    if (moves_ > kMaxProgramMoves) refuse({at}, "{}: more than {} slots are moved", name(at), kMaxProgramMoves);
    if (reads_src(step.kind) && writes_dst(step.kind)) check_overlap(at, step);
  }

  void check_dependency(const RankStep& at, const InstructionId& other) const {
    const std::vector<ThreadBlock>& blocks = program_.ranks[at.rank].blocks;
    if (other.block == at.step.block) refuse({at}, "{}: waits for a step of its own block", name(at));
    const bool block_exists = other.block >= 0 && static_cast<std::size_t>(other.block) < blocks.size();
    if (!block_exists || other.step < 0 || static_cast<std::size_t>(other.step) >= blocks[other.block].steps.size()) {
      refuse({at}, "{}: waits for block {}, step {}, which is not there", name(at), other.block, other.step);
    }
  }

  void check_range(const RankStep& at, std::string_view verb, SlotRef first, std::int64_t count) const {
    std::int64_t slots = 0;
    if (first.buffer == BufferKind::input) slots = input_slots(program_.spec, at.rank);
    if (first.buffer == BufferKind::output) slots = output_slots(program_.spec, at.rank);
    if (first.buffer == BufferKind::scratch) slots = program_.ranks[at.rank].scratch_slots;
    if (first.buffer > BufferKind::scratch) refuse({at}, "{}: there is no such buffer", name(at));
    // Compares without adding, because the sum of two arbitrary numbers may overflow.
    if (first.slot >= 0 && first.slot < slots && count <= slots - first.slot) return;
    refuse({at}, "{}: {} {} slot{} from {} of {}; this rank has {}", name(at), verb, count, count == 1 ? "" : "s",
           first.slot, name_of(first.buffer), slots);
  }

  // A step that shifts slots onto themselves would depend on the direction in which it copies.
  void check_overlap(const RankStep& at, const Instruction& step) const {
    const SlotRef src = located(program_, at.rank, step.src);
    const SlotRef dst = located(program_, at.rank, step.dst);
    const std::int64_t shift = dst.slot - src.slot;
    if (src.buffer != dst.buffer || shift == 0 || shift >= step.count || -shift >= step.count) return;
    refuse({at}, "{}: reads {} slots from {} of {} and writes them from {} on: they overlap", name(at), step.count,
           src.slot, name_of(src.buffer), dst.slot);
  }

  std::string name(const RankStep& at) const { return where(program_, at.rank, at.step); }

  const Program& program_;
  std::int64_t moves_ = 0;
};

}  // namespace

std::string_view name_of(ProgramRule rule) {
  static constexpr std::string_view kNames[] = {"structure", "matching", "deadlock", "hazard", "value"};
  return enum_name(kNames, rule);
}

std::optional<Finding> check_structure(const Program& program) {
  try {
    StructureCheck(program).run();
  } catch (Refused& refused) {
    return std::move(refused.finding);
  }
  return std::nullopt;
}

}  // namespace weft
