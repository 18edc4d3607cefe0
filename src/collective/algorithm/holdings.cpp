#include "collective/algorithm/holdings.hpp"

#include "base/error.hpp"
#include "collective/piece_sizes.hpp"

namespace weft {
namespace {

constexpr SlotRef kNowhere{BufferKind::scratch, -1};

SlotRef later(SlotRef slot, std::int64_t by) {
  return {slot.buffer, slot.slot + by};
}

const SlotRef& look_up(const std::vector<std::vector<SlotRef>>& table, std::int64_t rank, std::int64_t piece) {
  return table[rank][piece];
}

SlotRef& look_up(std::vector<std::vector<SlotRef>>& table, std::int64_t rank, std::int64_t piece) {
  return table[rank][piece];
}

}  // namespace

Pieces consecutive(std::int64_t first, std::int64_t count) {
  Pieces pieces;
  for (std::int64_t i = 0; i < count; ++i) pieces.push_back(first + i);
  return pieces;
}

Holdings::Holdings(ProgramBuilder& builder) : builder_(builder) {
  const CollectiveSpec& spec = builder.spec();
  WEFT_CHECK(spec.kind != Collective::all_to_all);
  const std::size_t pieces = piece_count(spec);
  const std::vector<std::vector<SlotRef>> nowhere(builder.rank_count(), std::vector<SlotRef>(pieces, kNowhere));
  at_ = output_ = room_ = nowhere;
  scratch_.assign(nowhere.size(), 0);
  for (std::int64_t rank = 0; rank < builder.rank_count(); ++rank) {
    for (std::int64_t slot = 0; slot < input_slots(spec, rank); ++slot) {
      const SlotRef place = canonical(rank, {BufferKind::input, slot});
      const std::int64_t piece = initial_content(spec, rank, slot).piece;
      look_up(at_, rank, piece) = place;
      if (builder.in_place()) look_up(room_, rank, piece) = place;
    }
    for (std::int64_t slot = 0; slot < output_slots(spec, rank); ++slot) {
      const SlotRef place = canonical(rank, {BufferKind::output, slot});
      const std::int64_t piece = required_content(spec, rank, slot).piece;
      look_up(output_, rank, piece) = place;
      look_up(room_, rank, piece) = place;
    }
  }
}

// In place a slot has two names. The one in the larger buffer is used, so that neighbouring slots have neighbouring
// names.
SlotRef Holdings::canonical(std::int64_t rank, SlotRef slot) const {
  if (!builder_.in_place()) return slot;
  const CollectiveSpec& spec = builder_.spec();
  const bool input_is_larger = input_slots(spec, rank) >= output_slots(spec, rank);
  if (input_is_larger && slot.buffer == BufferKind::output) {
    return {BufferKind::input, in_place_slot_of_output(spec, rank, slot.slot)};
  }
  if (!input_is_larger && slot.buffer == BufferKind::input) {
    return {BufferKind::output, in_place_slot_of_input(spec, rank, slot.slot)};
  }
  return slot;
}

SlotRef Holdings::at(std::int64_t rank, std::int64_t piece) const {
  return look_up(at_, rank, piece);
}

SlotRef Holdings::room(std::int64_t rank, std::int64_t piece) {
  SlotRef& place = look_up(room_, rank, piece);
  if (place == kNowhere) place = {BufferKind::scratch, scratch_[rank]++};
  return place;
}

void Holdings::carry(const Move& move, bool reduce) {
  const auto count = static_cast<std::int64_t>(move.pieces.size());
  for (std::int64_t part = 0; part < move.messages; ++part) {
    Message message{move.from, move.to, move.channel, {}, {}, {}};
    const std::int64_t end = part_begin(count, move.messages, part + 1);
    for (std::int64_t i = part_begin(count, move.messages, part); i < end; ++i) {
      const std::int64_t piece = move.pieces[i];
      message.pieces.push_back(piece);
      message.src.push_back(move.src ? later(*move.src, i) : at(move.from, piece));
      message.dst.push_back(move.dst ? later(*move.dst, i) : room(move.to, piece));
    }
    send(message, reduce);
  }
}

// Sends one message for every range of pieces that is contiguous at both ends.
void Holdings::send(const Message& message, bool reduce) {
  const auto follows = [&](std::size_t i) {
    const SlotRef operand = at(message.to, message.pieces[i - 1]);
    return message.src[i] == later(message.src[i - 1], 1) && message.dst[i] == later(message.dst[i - 1], 1) &&
           (!reduce || at(message.to, message.pieces[i]) == (operand == kNowhere ? kNowhere : later(operand, 1)));
  };
  for (std::size_t begin = 0; begin < message.pieces.size();) {
    std::size_t end = begin + 1;
    while (end < message.pieces.size() && follows(end)) ++end;
    const Spot from{message.from, message.src[begin]};
    const Spot operand{message.to, at(message.to, message.pieces[begin])};
    const Spot to{message.to, message.dst[begin]};
    WEFT_CHECK(from.slot != kNowhere);
    const auto count = static_cast<std::int64_t>(end - begin);
    if (reduce && operand.slot != kNowhere) {
      builder_.reduce(from, operand, to, count, message.channel);
    } else {
      builder_.copy(from, to, count, message.channel);
    }
    for (; begin < end; ++begin) look_up(at_, message.to, message.pieces[begin]) = message.dst[begin];
  }
}

void Holdings::settle() {
  const CollectiveSpec& spec = builder_.spec();
  for (std::int64_t rank = 0; rank < spec.ranks; ++rank) {
    Message message{rank, rank, 0, {}, {}, {}};
    for (std::int64_t slot = 0; slot < output_slots(spec, rank); ++slot) {
      const std::int64_t piece = required_content(spec, rank, slot).piece;
      const SlotRef place = look_up(output_, rank, piece);
      if (at(rank, piece) == kNowhere || at(rank, piece) == place) continue;
      message.pieces.push_back(piece);
      message.src.push_back(at(rank, piece));
      message.dst.push_back(place);
    }
    send(message, false);
  }
}

}  // namespace weft
