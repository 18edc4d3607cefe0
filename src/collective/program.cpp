#include "collective/program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/enum_name.hpp"

namespace weft {

std::string_view name_of(BufferKind buffer) {
  static constexpr std::string_view kNames[] = {"input", "output", "scratch"};
  return enum_name(kNames, buffer);
}

std::string_view name_of(InstructionKind kind) {
  static constexpr auto kNames =
      std::to_array<std::string_view>({"send", "receive", "receive_copy_send", "receive_reduce_send",
                                       "receive_reduce_copy", "receive_reduce_copy_send", "copy", "reduce", "nop"});
  return enum_name(kNames, kind);
}

bool sends(InstructionKind kind) {
  return kind == InstructionKind::send || kind == InstructionKind::receive_copy_send ||
         kind == InstructionKind::receive_reduce_send || kind == InstructionKind::receive_reduce_copy_send;
}

bool receives(InstructionKind kind) {
  return kind == InstructionKind::receive || kind == InstructionKind::receive_copy_send ||
         kind == InstructionKind::receive_reduce_send || kind == InstructionKind::receive_reduce_copy ||
         kind == InstructionKind::receive_reduce_copy_send;
}

bool reduces(InstructionKind kind) {
  return kind == InstructionKind::receive_reduce_send || kind == InstructionKind::receive_reduce_copy ||
         kind == InstructionKind::receive_reduce_copy_send || kind == InstructionKind::reduce;
}

bool reads_src(InstructionKind kind) {
  return kind == InstructionKind::send || kind == InstructionKind::copy || reduces(kind);
}

bool writes_dst(InstructionKind kind) {
  return kind != InstructionKind::send && kind != InstructionKind::receive_reduce_send && kind != InstructionKind::nop;
}

SlotRef located(const Program& program, std::int64_t rank, SlotRef slot) {
  if (!program.in_place || slot.buffer == BufferKind::scratch) return slot;
  if (slot.buffer == BufferKind::input) {
    return {BufferKind::output, in_place_slot_of_input(program.spec, rank, slot.slot)};
  }
  return {BufferKind::output, in_place_slot_of_output(program.spec, rank, slot.slot)};
}

std::int64_t slot_count(const Program& program, std::int64_t rank, BufferKind buffer) {
  if (buffer == BufferKind::scratch) return program.ranks[rank].scratch_slots;
  const std::int64_t in = input_slots(program.spec, rank);
  const std::int64_t out = output_slots(program.spec, rank);
  if (program.in_place) return buffer == BufferKind::output ? std::max(in, out) : 0;
  return buffer == BufferKind::input ? in : out;
}

std::string where(const Program& program, std::int64_t rank, InstructionId step) {
  const auto& blocks = program.ranks[rank].blocks;
  const auto& steps = blocks[step.block].steps;
  return fmt::format("rank {}, block {}, step {} ({})", rank, step.block, step.step, name_of(steps[step.step].kind));
}

}  // namespace weft
