#include "collective/verify/testing/mutations.hpp"

#include <algorithm>
#include <array>

#include "base/enum_name.hpp"

namespace weft::testing {
namespace {

template <class T>
std::size_t draw(const std::vector<T>& from, Random& random) {
  return random.below(static_cast<std::int64_t>(from.size()));
}

struct Place {
  std::size_t rank = 0, block = 0, step = 0;
};

// Works at one place that was drawn.
class Mutator {
 public:
  Mutator(const Program& program, Random& random) : mutant_(unchanged(program)), random_(random) {}

  std::optional<Mutant> apply(Mutation mutation) {
    if (!draw_place() || !change(mutation)) return std::nullopt;
    return std::move(mutant_);
  }

 private:
  bool draw_place() {
    place_.rank = draw(mutant_.program.ranks, random_);
    if (code().blocks.empty()) return false;
    place_.block = draw(code().blocks, random_);
    if (block().steps.empty()) return false;
    place_.step = draw(block().steps, random_);
    return true;
  }

  bool change(Mutation mutation) {
    switch (mutation) {
      case Mutation::drop:
        erase();
        return true;
      case Mutation::duplicate:
        insert(Instruction(step()));
        return true;
      case Mutation::drop_message:
      case Mutation::duplicate_message:
      case Mutation::count_of_message:
      case Mutation::rename_channel:
        return change_both_ends(mutation);
      case Mutation::swap_neighbours:
        return swap_neighbours();
      case Mutation::swap_any:
        return swap_any();
      case Mutation::change_kind:
        return change_kind();
      case Mutation::change_slot:
        return change_slot();
      case Mutation::change_count:
        step().count += random_.chance(2) || step().count == 1 ? 1 : -1;
        return step().kind != InstructionKind::nop;
      case Mutation::change_peer:
        return change_peer();
      case Mutation::change_channel:
        block().channel = block().channel == 0 ? 1 + random_.below(2) : block().channel - 1;
        return block().send_to >= 0 || block().receive_from >= 0;
      case Mutation::remove_dependency:
      case Mutation::change_dependency:
      case Mutation::add_dependency:
        return change_dependency(mutation);
      case Mutation::insert_nop:
        insert({InstructionKind::nop, {}, {}, 1, {}});
        return true;
    }
    return false;
  }

  void erase() {
    auto& steps = block().steps;
    steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(place_.step));
    auto& origin = mutant_.origin[place_.rank][place_.block];
    origin.erase(origin.begin() + static_cast<std::ptrdiff_t>(place_.step));
    const InstructionId erased = here();
    // Who waited for it waits for the step before it.
    for (ThreadBlock& each : code().blocks) {
      for (Instruction& instruction : each.steps) {
        for (InstructionId& other : instruction.after)
          other.step -= other.block == erased.block && other.step >= erased.step;
        std::erase_if(instruction.after, [](const InstructionId& other) { return other.step < 0; });
      }
    }
  }

  // Behind the drawn step.
  void insert(Instruction instruction) {
    for (ThreadBlock& each : code().blocks) {
      for (Instruction& waiting : each.steps) {
        for (InstructionId& other : waiting.after) {
          other.step += other.block == here().block && other.step > here().step;
        }
      }
    }
    auto& steps = block().steps;
    steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(place_.step) + 1, std::move(instruction));
    auto& origin = mutant_.origin[place_.rank][place_.block];
    origin.insert(origin.begin() + static_cast<std::ptrdiff_t>(place_.step) + 1, -1);
  }

  // The drawn step must do nothing but send, its receive nothing but receive.
  bool change_both_ends(Mutation mutation) {
    const Place sender = place_;
    const std::optional<Place> receiver = receive_of_drawn();
    if (!receiver) return false;
    const std::int64_t more = step().count > 1 && random_.chance(2) ? -1 : 1;
    for (const Place& end : {sender, *receiver}) {
      place_ = end;
      if (mutation == Mutation::drop_message) erase();
      if (mutation == Mutation::duplicate_message) insert(Instruction(step()));
      if (mutation == Mutation::count_of_message) step().count += more;
      if (mutation == Mutation::rename_channel) {
        if (block().send_to >= 0 && block().receive_from >= 0) return false;
        block().channel += 100;
      }
    }
    return true;
  }

  std::optional<Place> receive_of_drawn() {
    if (step().kind != InstructionKind::send) return std::nullopt;
    const auto is_before = block().steps.begin() + static_cast<std::ptrdiff_t>(place_.step);
    auto message = std::count_if(block().steps.begin(), is_before, [](const auto& each) { return sends(each.kind); });
    const std::size_t peer = block().send_to;
    const std::vector<ThreadBlock>& blocks = mutant_.program.ranks[peer].blocks;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      if (blocks[b].receive_from != static_cast<std::int64_t>(place_.rank) || blocks[b].channel != block().channel) {
        continue;
      }
      for (std::size_t s = 0; s < blocks[b].steps.size(); ++s) {
        const InstructionKind kind = blocks[b].steps[s].kind;
        if (!receives(kind) || message-- > 0) continue;
        if (kind != InstructionKind::receive && kind != InstructionKind::receive_reduce_copy) return std::nullopt;
        return Place{peer, b, s};
      }
    }
    return std::nullopt;
  }

  bool swap_neighbours() {
    if (place_.step + 1 == block().steps.size()) return false;
    std::swap(block().steps[place_.step], block().steps[place_.step + 1]);
    auto& origin = mutant_.origin[place_.rank][place_.block];
    std::swap(origin[place_.step], origin[place_.step + 1]);
    for (ThreadBlock& each : code().blocks) {
      for (Instruction& instruction : each.steps) {
        for (InstructionId& other : instruction.after) {
          if (other.block != here().block) continue;
          if (other.step == here().step) {
            ++other.step;
          } else if (other.step == here().step + 1) {
            --other.step;
          }
        }
      }
    }
    return true;
  }

  bool swap_any() {
    const std::size_t other_block = draw(code().blocks, random_);
    if (code().blocks[other_block].steps.empty()) return false;
    const std::size_t other_step = draw(code().blocks[other_block].steps, random_);
    if (other_block == place_.block && other_step == place_.step) return false;
    Instruction& other = code().blocks[other_block].steps[other_step];
    std::swap(step(), other);
    if (random_.chance(2)) std::swap(step().after, other.after);
    std::swap(mutant_.origin[place_.rank][place_.block][place_.step],
              mutant_.origin[place_.rank][other_block][other_step]);
    return true;
  }

  bool change_kind() {
    const auto other = static_cast<InstructionKind>(random_.below(static_cast<std::int64_t>(InstructionKind::nop) + 1));
    if (other == step().kind) return false;
    step().kind = other;
    return true;
  }

  bool change_slot() {
    const bool reads = reads_src(step().kind);
    const bool writes = writes_dst(step().kind);
    if (!reads && !writes) return false;
    SlotRef& slot = reads && (!writes || random_.chance(2)) ? step().src : step().dst;
    const SlotRef before = slot;
    if (random_.chance(4)) slot.buffer = static_cast<BufferKind>(random_.below(3));
    const auto r = static_cast<std::int64_t>(place_.rank);
    std::int64_t slots = code().scratch_slots;
    if (slot.buffer == BufferKind::input) slots = input_slots(mutant_.program.spec, r);
    if (slot.buffer == BufferKind::output) slots = output_slots(mutant_.program.spec, r);
    if (slots > 0) slot.slot = random_.below(slots);
    return !(slot == before);
  }

  bool change_peer() {
    const bool can_send = block().send_to >= 0;
    const bool can_receive = block().receive_from >= 0;
    if (!can_send && !can_receive) return false;
    std::int64_t& peer = can_send && (!can_receive || random_.chance(2)) ? block().send_to : block().receive_from;
    const std::int64_t before = peer;
    peer = static_cast<std::int64_t>(draw(mutant_.program.ranks, random_));
    return peer != before && peer != static_cast<std::int64_t>(place_.rank);
  }

  bool change_dependency(Mutation mutation) {
    if (mutation != Mutation::add_dependency) {
      if (step().after.empty() && !draw_waiting_step()) return false;
    }
    const std::size_t which = step().after.empty() ? 0 : draw(step().after, random_);
    if (mutation == Mutation::remove_dependency) {
      step().after.erase(step().after.begin() + static_cast<std::ptrdiff_t>(which));
      return true;
    }
    const std::size_t other_block = draw(code().blocks, random_);
    if (other_block == place_.block || code().blocks[other_block].steps.empty()) return false;
    const InstructionId other{static_cast<std::int32_t>(other_block),
                              static_cast<std::int32_t>(draw(code().blocks[other_block].steps, random_))};
    if (mutation == Mutation::add_dependency) {
      step().after.push_back(other);
      return true;
    }
    if (step().after[which] == other) return false;
    step().after[which] = other;
    return true;
  }

  // Few steps wait: looks for the next one of the rank that does.
  bool draw_waiting_step() {
    const std::size_t blocks = code().blocks.size();
    for (std::size_t i = 0; i < blocks; ++i) {
      const std::size_t b = (place_.block + i) % blocks;
      for (std::size_t s = i == 0 ? place_.step : 0; s < code().blocks[b].steps.size(); ++s) {
        if (code().blocks[b].steps[s].after.empty()) continue;
        place_.block = b;
        place_.step = s;
        return true;
      }
    }
    return false;
  }

  RankProgram& code() { return mutant_.program.ranks[place_.rank]; }
  ThreadBlock& block() { return code().blocks[place_.block]; }
  Instruction& step() { return block().steps[place_.step]; }
  InstructionId here() const {
    return {static_cast<std::int32_t>(place_.block), static_cast<std::int32_t>(place_.step)};
  }

  Mutant mutant_;
  Random& random_;
  Place place_;
};

}  // namespace

std::string_view name_of(Mutation mutation) {
  static constexpr auto kNames = std::to_array<std::string_view>(
      {"drop an instruction", "duplicate one", "drop a send and its receive", "duplicate both",
       "change the count of both", "swap neighbours of a block", "swap any two of a rank", "change the kind",
       "retarget a slot", "change a count", "retarget a peer", "retarget a channel", "rename a channel at both ends",
       "remove a dependency", "change a dependency", "add a dependency", "insert a nop"});
  return enum_name(kNames, mutation);
}

Mutant unchanged(const Program& program) {
  Mutant mutant{program, {}};
  std::int32_t number = 0;
  for (const RankProgram& rank : program.ranks) {
    auto& blocks = mutant.origin.emplace_back();
    for (const ThreadBlock& block : rank.blocks) {
      auto& steps = blocks.emplace_back();
      for (std::size_t i = 0; i < block.steps.size(); ++i) steps.push_back(number++);
    }
  }
  return mutant;
}

std::optional<Mutant> mutate(const Program& program, Mutation mutation, Random& random) {
  return Mutator(program, random).apply(mutation);
}

}  // namespace weft::testing
