#include "collective/program_builder.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace weft {
namespace {

void raise(std::vector<std::int32_t>& clock, std::size_t block, std::int32_t step) {
  if (clock.size() <= block) clock.resize(block + 1, -1);
  clock[block] = std::max(clock[block], step);
}

void join(std::vector<std::int32_t>& clock, const std::vector<std::int32_t>& other) {
  for (std::size_t block = 0; block < other.size(); ++block) raise(clock, block, other[block]);
}

bool covers(const std::vector<std::int32_t>& clock, InstructionId step) {
  const std::size_t block = step.block;
  return block < clock.size() && clock[block] >= step.step;
}

}  // namespace

ProgramBuilder::ProgramBuilder(std::string name, const CollectiveSpec& spec, bool in_place, std::int64_t helpers) {
  validate(spec, name);
  program_.name = std::move(name);
  program_.spec = spec;
  program_.in_place = in_place;
  program_.ranks.resize(spec.ranks + helpers);
  states_.resize(program_.ranks.size());
}

void ProgramBuilder::copy(Spot from, Spot to, std::int64_t count, std::int64_t channel) {
  if (from.rank == to.rank) {
    if (located(program_, from.rank, from.slot) == located(program_, to.rank, to.slot)) return;
    append(to.rank, block_for(to.rank, -1, -1, 0), {InstructionKind::copy, from.slot, to.slot, count, {}});
    return;
  }
  append(from.rank, block_for(from.rank, to.rank, -1, channel), {InstructionKind::send, from.slot, to.slot, count, {}});
  append(to.rank, block_for(to.rank, -1, from.rank, channel),
         {InstructionKind::receive, from.slot, to.slot, count, {}});
}

void ProgramBuilder::reduce(Spot from, Spot to, std::int64_t count, std::int64_t channel) {
  if (from.rank == to.rank) {
    append(to.rank, block_for(to.rank, -1, -1, 0), {InstructionKind::reduce, from.slot, to.slot, count, {}});
    return;
  }
  reduce(from, to, to, count, channel);
}

void ProgramBuilder::reduce(Spot from, Spot operand, Spot to, std::int64_t count, std::int64_t channel) {
  WEFT_CHECK(from.rank != to.rank && operand.rank == to.rank);
  append(from.rank, block_for(from.rank, to.rank, -1, channel), {InstructionKind::send, from.slot, to.slot, count, {}});
  append(to.rank, block_for(to.rank, -1, from.rank, channel),
         {InstructionKind::receive_reduce_copy, operand.slot, to.slot, count, {}});
}

std::int32_t ProgramBuilder::block_for(std::int64_t rank, std::int64_t send_to, std::int64_t receive_from,
                                       std::int64_t channel) {
  RankState& state = states_[rank];
  std::vector<ThreadBlock>& blocks = program_.ranks[rank].blocks;
  const auto next = static_cast<std::int32_t>(blocks.size());
  std::int32_t* known = &state.local_block;
  if (send_to >= 0) known = &state.send_blocks.try_emplace({send_to, channel}, -1).first->second;
  if (receive_from >= 0) known = &state.receive_blocks.try_emplace({receive_from, channel}, -1).first->second;
  if (*known < 0) {
    *known = next;
    blocks.push_back({send_to, receive_from, channel, {}});
    state.done.emplace_back();
  }
  return *known;
}

// An instruction waits for the last writer of what it reads or writes and for the readers of what it overwrites. It
// names only those that its block and the other named instructions do not already wait for.
void ProgramBuilder::append(std::int64_t rank, std::int32_t block, Instruction instruction) {
  RankState& state = states_[rank];
  RankProgram& code = program_.ranks[rank];
  const InstructionId id{block, static_cast<std::int32_t>(code.blocks[block].steps.size())};
  std::vector<SlotUse*> read, written;
  for (std::int64_t i = 0; i < instruction.count; ++i) {
    const auto use = [&](SlotRef first) {
      const SlotRef slot = located(program_, rank, {first.buffer, first.slot + i});
      if (slot.buffer == BufferKind::scratch) code.scratch_slots = std::max(code.scratch_slots, slot.slot + 1);
      return &state.uses[{slot.buffer, slot.slot}];
    };
    if (reads_src(instruction.kind)) read.push_back(use(instruction.src));
    if (writes_dst(instruction.kind)) written.push_back(use(instruction.dst));
  }
  std::vector<const Use*> before;
  for (const SlotUse* slot : read) {
    for (const Use& use : slot->writers) before.push_back(&use);
  }
  for (const SlotUse* slot : written) {
    for (const Use& use : slot->writers) before.push_back(&use);
    for (const Use& use : slot->readers) before.push_back(&use);
  }
  std::vector<Use>* turn = nullptr;  // the instructions that it queues behind
  if (send_in_turn_ && sends(instruction.kind)) turn = &state.last_send;
  if (turn != nullptr && !turn->empty()) before.push_back(&turn->front());
  // Later instructions come first, so that those they imply are left out. One writer of many slots counts once.
  std::stable_sort(before.begin(), before.end(), [](const Use* a, const Use* b) {
    return std::pair(a->step.step, a->step.block) > std::pair(b->step.step, b->step.block);
  });
  before.erase(std::unique(before.begin(), before.end(), [](const Use* a, const Use* b) { return a->step == b->step; }),
               before.end());
  std::vector<std::int32_t>& clock = state.done[block];
  for (const Use* use : before) {
    if (use->step.block == block || covers(clock, use->step)) continue;
    const bool implied = std::any_of(before.begin(), before.end(), [&](const Use* other) {
      return other->step != use->step && covers(other->done, use->step);
    });
    if (implied) continue;
    instruction.after.push_back(use->step);
    join(clock, use->done);
    raise(clock, static_cast<std::size_t>(use->step.block), use->step.step);
  }
  std::sort(instruction.after.begin(), instruction.after.end());
  raise(clock, static_cast<std::size_t>(block), id.step);
  if (turn != nullptr) turn->assign(1, {id, clock});
  for (SlotUse* slot : written) {
    slot->writers.assign(1, {id, clock});
    slot->readers.clear();
  }
  for (SlotUse* slot : read) slot->readers.push_back({id, clock});
  code.blocks[block].steps.push_back(std::move(instruction));
}

Program ProgramBuilder::finish() && {
  return std::move(program_);
}

}  // namespace weft
