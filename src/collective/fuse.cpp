// Merging two blocks only adds order, so no hazard can arise. A symbolic run shows that nothing waits for ever and that
// the result is the same.
#include "collective/fuse.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "collective/rewrite.hpp"
#include "collective/verify/symbolic_run.hpp"

namespace weft {
namespace {

constexpr std::int64_t kAllChannels = -1;

struct Pair {
  std::int32_t receive = 0, send = 0;  // steps of their blocks
};

struct Merge {
  std::int32_t receiver = 0, sender = 0;  // blocks
  std::vector<Pair> pairs;                // rising in both
};

std::int32_t size_of(const ThreadBlock& block) {
  return static_cast<std::int32_t>(block.steps.size());
}

const Instruction& step_of(const ThreadBlock& block, std::int32_t step) {
  return block.steps[step];
}

bool can_join(const Program& program, std::int64_t rank, const Instruction& receive, const Instruction& send) {
  return (receive.kind == InstructionKind::receive || receive.kind == InstructionKind::receive_reduce_copy) &&
         send.kind == InstructionKind::send && receive.count == send.count &&
         located(program, rank, receive.dst) == located(program, rank, send.src);
}

// A send is paired with the last receive of the other block that it waits for, which wrote its slots.
std::vector<Pair> pairs_of(const Program& program, std::int64_t rank, std::int32_t receiver, std::int32_t sender) {
  const std::vector<ThreadBlock>& blocks = program.ranks[rank].blocks;
  const ThreadBlock& in = blocks[receiver];
  const ThreadBlock& out = blocks[sender];
  std::vector<Pair> pairs;
  for (std::int32_t send = 0; send < size_of(out); ++send) {
    std::int32_t last = -1;
    for (const InstructionId& other : step_of(out, send).after) {
      if (other.block == receiver) last = std::max(last, other.step);
    }
    if (last < 0 || (!pairs.empty() && last <= pairs.back().receive)) continue;
    if (can_join(program, rank, step_of(in, last), step_of(out, send))) pairs.push_back({last, send});
  }
  return pairs;
}

// Returns the merge that pairs most instructions, if any is worth it.
std::optional<Merge> best_merge(const Program& program, std::int64_t rank, std::int64_t channel,
                                const std::vector<Merge>& refused) {
  const std::vector<ThreadBlock>& blocks = program.ranks[rank].blocks;
  std::optional<Merge> best;
  for (std::size_t r = 0; r < blocks.size(); ++r) {
    if (blocks[r].receive_from < 0 || blocks[r].send_to >= 0) continue;
    if (channel != kAllChannels && blocks[r].channel != channel) continue;
    for (std::size_t s = 0; s < blocks.size(); ++s) {
      if (blocks[s].send_to < 0 || blocks[s].receive_from >= 0 || blocks[s].channel != blocks[r].channel) continue;
      Merge merge{static_cast<std::int32_t>(r), static_cast<std::int32_t>(s), {}};
      const bool known = std::any_of(refused.begin(), refused.end(), [&](const Merge& other) {
        return other.receiver == merge.receiver && other.sender == merge.sender;
      });
      if (known) continue;
      merge.pairs = pairs_of(program, rank, merge.receiver, merge.sender);
      const std::size_t longer = std::max(blocks[r].steps.size(), blocks[s].steps.size());
      if (merge.pairs.empty() || 2 * merge.pairs.size() < longer) continue;
      if (!best || merge.pairs.size() > best->pairs.size()) best = std::move(merge);
    }
  }
  return best;
}

Instruction joined(const Instruction& receive, const Instruction& send) {
  Instruction result = receive;
  result.kind = receive.kind == InstructionKind::receive ? InstructionKind::receive_copy_send
                                                         : InstructionKind::receive_reduce_copy_send;
  result.after.insert(result.after.end(), send.after.begin(), send.after.end());
  return result;
}

// Interleaves the instructions of two blocks. A send comes as soon as everything that it waits for is placed, since a
// peer may be waiting for it.
class Zipper {
 public:
  Zipper(const RankProgram& rank, const Merge& merge)
      : merge_(merge), in_(rank.blocks[merge.receiver]), out_(rank.blocks[merge.sender]), places_(rank) {}

  // False where the orders of the blocks contradict each other.
  bool run() {
    for (const Pair& pair : merge_.pairs) {
      if (!advance(pair.receive, pair.send)) return false;
      if (!ready(step_of(in_, pair.receive)) || !ready(step_of(out_, pair.send), pair.receive)) return false;
      place({merge_.receiver, next_in_++});
      place({merge_.sender, next_out_++});
      row_.push_back(joined(step_of(in_, pair.receive), step_of(out_, pair.send)));
    }
    return advance(size_of(in_), size_of(out_));
  }

  // The rank with the row in place of the receiver, and without the sender.
  RankProgram result(RankProgram rank) {
    ThreadBlock& block = rank.blocks[merge_.receiver];
    block.send_to = out_.send_to;
    const auto moved_block = [&](std::int32_t b) { return b > merge_.sender ? b - 1 : b; };
    for (std::int32_t b = 0; b < static_cast<std::int32_t>(rank.blocks.size()); ++b) {
      for (std::int32_t s = 0; s < size_of(rank.blocks[b]); ++s) {
        const InstructionId place = places_.of({b, s});
        places_.move({b, s}, {moved_block(place.block), place.step});
      }
    }
    block.steps = std::move(row_);
    rank.blocks.erase(rank.blocks.begin() + merge_.sender);
    rename_after(rank, places_);
    return rank;
  }

 private:
  bool advance(std::int32_t in_end, std::int32_t out_end) {
    while (next_in_ < in_end || next_out_ < out_end) {
      if (next_out_ < out_end && ready(step_of(out_, next_out_))) {
        row_.push_back(step_of(out_, next_out_));
        place({merge_.sender, next_out_++}, 1);
      } else if (next_in_ < in_end && ready(step_of(in_, next_in_))) {
        row_.push_back(step_of(in_, next_in_));
        place({merge_.receiver, next_in_++}, 1);
      } else {
        return false;
      }
    }
    return true;
  }

  // Returns whether everything that it waits for in the two blocks is placed; `joining` is the receive that comes with
  // it.
  bool ready(const Instruction& step, std::int32_t joining = -1) const {
    return std::all_of(step.after.begin(), step.after.end(), [&](const InstructionId& other) {
      if (other.block == merge_.receiver) return other.step < next_in_ || other.step == joining;
      return other.block != merge_.sender || other.step < next_out_;
    });
  }

  void place(InstructionId step, std::size_t back = 0) {
    places_.move(step, {merge_.receiver, static_cast<std::int32_t>(row_.size() - back)});
  }

  const Merge& merge_;
  const ThreadBlock& in_;
  const ThreadBlock& out_;
  StepPlaces places_;
  std::vector<Instruction> row_;
  std::int32_t next_in_ = 0, next_out_ = 0;
};

bool works(const Program& program) {
  return !run_symbolically(program).violation;
}

// Merges what it can on one rank, of one channel or of all.
void merge_blocks(Program& program, std::int64_t rank, std::int64_t channel) {
  std::vector<Merge> refused;
  while (auto merge = best_merge(program, rank, channel, refused)) {
    RankProgram& code = program.ranks[rank];
    Zipper zipper(code, *merge);
    if (zipper.run()) {
      code = zipper.result(code);
      refused.clear();  // the blocks were renumbered
    } else {
      refused.push_back(std::move(*merge));
    }
  }
}

Program merged(const Program& program, std::int64_t channel) {
  Program result = program;
  for (std::size_t rank = 0; rank < result.ranks.size(); ++rank) {
    merge_blocks(result, static_cast<std::int64_t>(rank), channel);
  }
  return result;
}

// Merges on all ranks alike: a rank that merges while its neighbours do not would only slow them down. Channels are
// independent, so some may be merged where others cannot.
Program merged(const Program& program) {
  if (Program all = merged(program, kAllChannels); works(all)) return all;
  std::int64_t channels = 0;
  for (const RankProgram& rank : program.ranks) {
    for (const ThreadBlock& block : rank.blocks) channels = std::max(channels, block.channel + 1);
  }
  Program result = program;
  for (std::int64_t channel = 0; channel < channels && channels > 1; ++channel) {
    if (Program some = merged(result, channel); works(some)) result = std::move(some);
  }
  return result;
}

// Returns the instructions whose stored results are read. Without hazards one execution shows this for all timings.
std::vector<std::vector<std::vector<bool>>> read_stores(const Program& program) {
  using Store = std::pair<std::size_t, InstructionId>;  // rank, step
  std::vector<std::vector<std::vector<bool>>> is_read;
  for (const RankProgram& rank : program.ranks) {
    auto& blocks = is_read.emplace_back();
    for (const ThreadBlock& block : rank.blocks) blocks.emplace_back(block.steps.size(), false);
  }
  std::map<std::tuple<std::int64_t, BufferKind, std::int64_t>, Store> last;
  const auto read = [&](std::int64_t rank, SlotRef slot) {
    const SlotRef real = located(program, rank, slot);
    const auto found = last.find({rank, real.buffer, real.slot});
    if (found == last.end()) return;
    const auto& [at, step] = found->second;
    is_read[at][step.block][step.step] = true;
  };
  for (const StepTrace& trace : run_symbolically(program).steps) {
    const ThreadBlock& block = program.ranks[trace.rank].blocks[trace.step.block];
    const Instruction& step = step_of(block, trace.step.step);
    for (std::int64_t i = 0; i < step.count && step.kind != InstructionKind::nop; ++i) {
      const SlotRef src{step.src.buffer, step.src.slot + i}, dst{step.dst.buffer, step.dst.slot + i};
      if (reads_src(step.kind)) read(trace.rank, src);
      if (step.kind == InstructionKind::reduce) read(trace.rank, dst);
      if (!writes_dst(step.kind)) continue;
      const SlotRef real = located(program, trace.rank, dst);
      last[{trace.rank, real.buffer, real.slot}] = {static_cast<std::size_t>(trace.rank), trace.step};
    }
  }
  for (std::int64_t rank = 0; rank < program.spec.ranks; ++rank) {
    for (std::int64_t slot = 0; slot < output_slots(program.spec, rank); ++slot) read(rank, {BufferKind::output, slot});
  }
  return is_read;
}

void drop_unread_stores(Program& program) {
  const auto is_read = read_stores(program);
  for (std::size_t rank = 0; rank < program.ranks.size(); ++rank) {
    RankProgram& code = program.ranks[rank];
    code.scratch_slots = 0;
    for (std::size_t b = 0; b < code.blocks.size(); ++b) {
      for (std::size_t s = 0; s < code.blocks[b].steps.size(); ++s) {
        Instruction& step = code.blocks[b].steps[s];
        if (step.kind == InstructionKind::receive_reduce_copy_send && !is_read[rank][b][s]) {
          step.kind = InstructionKind::receive_reduce_send;
        }
        const auto use = [&](SlotRef slot) {
          if (slot.buffer == BufferKind::scratch)
            code.scratch_slots = std::max(code.scratch_slots, slot.slot + step.count);
        };
        if (reads_src(step.kind)) use(step.src);
        if (writes_dst(step.kind)) use(step.dst);
      }
    }
  }
}

}  // namespace

Program fused(const Program& program) {
  if (!works(program)) return program;
  Program result = merged(without_nops(program));
  drop_unread_stores(result);
  return result;
}

}  // namespace weft
