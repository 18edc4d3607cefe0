#include "collective/verify/testing/brute_force.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

namespace weft::testing {
namespace {

std::uint64_t contribution(std::int64_t rank, std::int64_t piece) {
  return mixed(mixed(static_cast<std::uint64_t>(rank) + 1) ^ static_cast<std::uint64_t>(piece));
}

std::uint64_t value_of(const Content& content) {
  std::uint64_t sum = 0;
  for (const std::int64_t rank : content.from.members()) sum += contribution(rank, content.piece);
  return sum;
}

}  // namespace

BruteForce::BruteForce(const Program& program) : program_(program) {
  lay_out_memory();
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::int64_t> connections;
  const auto connection = [&](std::int64_t from, std::int64_t to, std::int64_t channel) {
    return connections.try_emplace({from, to, channel}, static_cast<std::int64_t>(connections.size())).first->second;
  };
  const auto ranks = static_cast<std::int64_t>(program.ranks.size());
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const std::vector<ThreadBlock>& blocks = program.ranks[rank].blocks;
    const std::size_t first_block = states_.size();
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      BlockState& state = states_.emplace_back();
      state.first = {rank, {static_cast<std::int32_t>(b), 0}};
      if (blocks[b].send_to >= ranks || blocks[b].receive_from >= ranks) broken_ = true;
      if (blocks[b].send_to >= 0) state.out = connection(rank, blocks[b].send_to, blocks[b].channel);
      if (blocks[b].receive_from >= 0) state.in = connection(blocks[b].receive_from, rank, blocks[b].channel);
      for (const Instruction& instruction : blocks[b].steps) {
        Step step{instruction.kind, 0, 0, instruction.kind == InstructionKind::nop ? 0 : instruction.count, {}};
        if (step.kind != InstructionKind::nop && step.count < 1) broken_ = true;
        if (sends(step.kind) && state.out < 0) broken_ = true;
        if (receives(step.kind) && state.in < 0) broken_ = true;
        if (reads_src(step.kind)) step.src = address(rank, instruction.src, step.count);
        if (writes_dst(step.kind)) step.dst = address(rank, instruction.dst, step.count);
        for (const InstructionId& other : instruction.after) {
          const auto block = static_cast<std::size_t>(other.block);
          if (block >= blocks.size() || static_cast<std::size_t>(other.step) >= blocks[block].steps.size()) {
            broken_ = true;
          } else {
            step.after.push_back({first_block + block, other.step});
          }
        }
        state.steps.push_back(std::move(step));
      }
    }
  }
  connections_.resize(connections.size());
}

void BruteForce::lay_out_memory() {
  std::int64_t size = 0;
  const auto ranks = static_cast<std::int64_t>(program_.ranks.size());
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    auto& begin = buffer_begin_.emplace_back();
    for (const BufferKind buffer : {BufferKind::input, BufferKind::output, BufferKind::scratch}) {
      begin.push_back(size);
      size += slot_count(program_, rank, buffer);
    }
    begin.push_back(size);
  }
  initial_.assign(size, 0);
  is_set_.assign(size, 0);
  for (std::int64_t rank = 0; rank < program_.spec.ranks; ++rank) {
    for (std::int64_t slot = 0; slot < input_slots(program_.spec, rank); ++slot) {
      const std::int64_t at = address(rank, {BufferKind::input, slot}, 1);
      initial_[at] = value_of(initial_content(program_.spec, rank, slot));
      is_set_[at] = 1;
      if (!program_.in_place) expected_.push_back({at, initial_[at]});
    }
    for (std::int64_t slot = 0; slot < output_slots(program_.spec, rank); ++slot) {
      const std::int64_t at = address(rank, {BufferKind::output, slot}, 1);
      expected_.push_back({at, value_of(required_content(program_.spec, rank, slot))});
    }
  }
}

std::int64_t BruteForce::address(std::int64_t rank, SlotRef first, std::int64_t count) {
  const SlotRef real = located(program_, rank, first);
  const auto& begin = buffer_begin_[rank];
  const auto buffer = static_cast<std::size_t>(real.buffer);
  const std::int64_t slots = begin[buffer + 1] - begin[buffer];
  if (real.slot < 0 || count < 1 || real.slot + count > slots) broken_ = true;
  return begin[buffer] + real.slot;
}

Outcome BruteForce::run(const Timing& timing) {
  if (broken_) return Outcome::broken;
  reset(timing);
  Random random(timing.seed);
  wait_for_room_first_ = random.chance(2);
  burst_ = std::int64_t{1} << random.below(4);
  for (BlockState& state : states_) state.slow = random.chance(3);
  while (!live_.empty()) {
    if (!take_turn(random)) return Outcome::stuck;
    if (broken_) {
      broken_ = false;  // by a message of this run, not by the program as it stands
      return Outcome::broken;
    }
  }
  return outcome();
}

void BruteForce::reset(const Timing& timing) {
  timing_ = timing;
  garbled_at_ = -1;
  if (timing.garbled) {
    const auto& begin = buffer_begin_[timing.garbled->rank];
    garbled_at_ = begin[static_cast<std::size_t>(timing.garbled_slot.buffer)] + timing.garbled_slot.slot;
  }
  memory_ = initial_;
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    if (!is_set_[i]) memory_[i] = mixed(timing.seed ^ mixed(i));
  }
  for (Connection& connection : connections_) {
    connection.messages.clear();
    connection.received = 0;
    connection.held = 0;
  }
  live_.clear();
  for (std::size_t i = 0; i < states_.size(); ++i) {
    states_[i].next = 0;
    states_[i].begun = false;
    if (!states_[i].steps.empty()) live_.push_back(i);
  }
  last_ = states_.size();
}

const BruteForce::BlockState* BruteForce::state_of(const RankStep& step) const {
  const auto found = std::find_if(states_.begin(), states_.end(), [&](const BlockState& state) {
    return state.first.rank == step.rank && state.first.step.block == step.step.block;
  });
  return found == states_.end() ? nullptr : &*found;
}

bool BruteForce::is_urgent(const LateStep& late) const {
  return late.until && static_cast<std::int32_t>(state_of(*late.until)->next) > late.until->step.step;
}

// Where in the list of late steps the block stands; past its end where it is not late.
std::size_t BruteForce::late_rank(const BlockState& state) const {
  const auto is_here = [&](const LateStep& late) {
    return state.first.rank == late.step.rank && state.first.step.block == late.step.step.block &&
           static_cast<std::int32_t>(state.next) == late.step.step.step &&
           (late.after_turns == 0 || (state.begun && state.turn >= late.after_turns)) && !is_urgent(late);
  };
  return static_cast<std::size_t>(std::find_if(timing_.late.begin(), timing_.late.end(), is_here) -
                                  timing_.late.begin());
}

// Mostly the same block again or any one; slow ones seldom; late steps last.
bool BruteForce::take_turn(Random& random) {
  const std::size_t never_late = timing_.late.size();
  for (const LateStep& late : timing_.late) {
    const BlockState* state = is_urgent(late) ? state_of(late.step) : nullptr;
    if (state == nullptr || static_cast<std::int32_t>(state->next) != late.step.step.step) continue;
    if (try_block(static_cast<std::size_t>(state - states_.data()), random)) return true;
  }
  if (last_ < states_.size() && states_[last_].next < states_[last_].steps.size() &&
      late_rank(states_[last_]) == never_late && !random.chance(burst_ + 1)) {
    if (try_block(last_, random)) return true;
  }
  const std::size_t count = live_.size();
  const auto start = static_cast<std::size_t>(random.below(static_cast<std::int64_t>(count)));
  const auto try_each = [&](const auto& wanted) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t index = live_[(start + i) % count];
      if (wanted(states_[index]) && try_block(index, random)) return true;
    }
    return false;
  };
  if (try_each([&](const BlockState& state) {
        return late_rank(state) == never_late && (!state.slow || random.chance(16));
      })) {
    return true;
  }
  if (try_each([&](const BlockState& state) { return late_rank(state) == never_late; })) return true;
  for (std::size_t late = 0; late < never_late; ++late) {
    if (try_each([&](const BlockState& state) { return late_rank(state) == late; })) return true;
  }
  return false;
}

bool BruteForce::try_block(std::size_t index, Random& random) {
  BlockState& state = states_[index];
  if (!state.begun) {
    if (!can_begin(state)) return false;
    begin(state, random);
  } else if (state.turn < 2 * state.steps[state.next].count) {
    move_slot(state);
  } else if (!end(state)) {
    return false;
  }
  last_ = index;
  if (state.next == state.steps.size()) live_.erase(std::find(live_.begin(), live_.end(), index));
  return true;
}

bool BruteForce::has_room(std::int64_t connection) const {
  const Connection& each = connections_[connection];
  const auto unread = static_cast<std::int64_t>(each.messages.size() - each.received);
  return unread + each.held < timing_.message_slots;
}

bool BruteForce::can_begin(const BlockState& state) const {
  const Step& step = state.steps[state.next];
  for (const Dependency& other : step.after) {
    if (static_cast<std::int64_t>(states_[other.block].next) <= other.step) return false;
  }
  if (receives(step.kind)) {
    const Connection& in = connections_[state.in];
    if (in.received == in.messages.size()) return false;
  }
  return !sends(step.kind) || !wait_for_room_first_ || has_room(state.out);
}

void BruteForce::begin(BlockState& state, Random& random) {
  const Step& step = state.steps[state.next];
  state.begun = true;
  state.turn = 0;
  state.values.assign(step.count, 0);
  state.slot_order.resize(step.count);
  std::iota(state.slot_order.begin(), state.slot_order.end(), 0);
  for (std::size_t i = state.slot_order.size(); i > 1; --i) {
    std::swap(state.slot_order[i - 1], state.slot_order[random.below(static_cast<std::int64_t>(i))]);
  }
  if (!receives(step.kind)) return;
  Connection& in = connections_[state.in];
  state.message = in.messages[in.received++];
  if (static_cast<std::int64_t>(state.message.size()) != step.count) broken_ = true;
  // A runtime may give the slot back at once or hold it to the end.
  if (wait_for_room_first_) ++in.held;
}

void BruteForce::move_slot(BlockState& state) {
  const Step& step = state.steps[state.next];
  const std::int64_t i = state.slot_order[state.turn / 2];
  std::uint64_t& value = state.values[i];
  const bool is_read = state.turn % 2 == 0;
  ++state.turn;
  if (is_read) {
    if (receives(step.kind)) value = state.message[i];
    if (reads_src(step.kind)) value += memory_[step.src + i];
    if (step.kind == InstructionKind::reduce) value += memory_[step.dst + i];
    if (reads_src(step.kind) && is_garbled(state, step.src + i)) value = mixed(value);
  } else if (writes_dst(step.kind)) {
    memory_[step.dst + i] = is_garbled(state, step.dst + i) ? mixed(value) : value;
  }
}

bool BruteForce::is_garbled(const BlockState& state, std::int64_t at) const {
  return at == garbled_at_ && state.first.rank == timing_.garbled->rank &&
         state.first.step.block == timing_.garbled->step.block &&
         static_cast<std::int32_t>(state.next) == timing_.garbled->step.step;
}

bool BruteForce::end(BlockState& state) {
  const Step& step = state.steps[state.next];
  if (sends(step.kind)) {
    if (!has_room(state.out)) return false;
    connections_[state.out].messages.push_back(state.values);
  }
  if (receives(step.kind) && wait_for_room_first_) --connections_[state.in].held;
  state.begun = false;
  ++state.next;
  return true;
}

Outcome BruteForce::outcome() const {
  for (const Expected& each : expected_) {
    if (memory_[each.address] != each.value) return Outcome::wrong;
  }
  for (const Connection& each : connections_) {
    if (each.received != each.messages.size()) return Outcome::left_over;
  }
  return Outcome::right;
}

}  // namespace weft::testing
