#include "collective/program.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft {

std::string_view name_of(BufferKind buffer) {
  switch (buffer) {
    case BufferKind::input:
      return "input";
    case BufferKind::output:
      return "output";
    case BufferKind::scratch:
      return "scratch";
  }
  return "?";
}

std::string_view name_of(StepKind kind) {
  switch (kind) {
    case StepKind::send:
      return "send";
    case StepKind::receive:
      return "receive";
    case StepKind::receive_copy_send:
      return "receive_copy_send";
    case StepKind::receive_reduce_send:
      return "receive_reduce_send";
    case StepKind::receive_reduce_copy:
      return "receive_reduce_copy";
    case StepKind::receive_reduce_copy_send:
      return "receive_reduce_copy_send";
    case StepKind::copy:
      return "copy";
    case StepKind::reduce:
      return "reduce";
    case StepKind::nop:
      return "nop";
  }
  return "?";
}

bool sends(StepKind kind) {
  return kind == StepKind::send || kind == StepKind::receive_copy_send || kind == StepKind::receive_reduce_send ||
         kind == StepKind::receive_reduce_copy_send;
}

bool receives(StepKind kind) {
  return kind == StepKind::receive || kind == StepKind::receive_copy_send || kind == StepKind::receive_reduce_send ||
         kind == StepKind::receive_reduce_copy || kind == StepKind::receive_reduce_copy_send;
}

bool reduces(StepKind kind) {
  return kind == StepKind::receive_reduce_send || kind == StepKind::receive_reduce_copy ||
         kind == StepKind::receive_reduce_copy_send || kind == StepKind::reduce;
}

bool reads_src(StepKind kind) {
  return kind == StepKind::send || kind == StepKind::copy || reduces(kind);
}

bool writes_dst(StepKind kind) {
  return kind != StepKind::send && kind != StepKind::receive_reduce_send && kind != StepKind::nop;
}

SlotRef located(const Program& program, std::int64_t rank, SlotRef slot) {
  if (!program.in_place || slot.buffer == BufferKind::scratch) return slot;
  if (slot.buffer == BufferKind::input) {
    return {BufferKind::output, in_place_slot_of_input(program.spec, rank, slot.slot)};
  }
  return {BufferKind::output, in_place_slot_of_output(program.spec, rank, slot.slot)};
}

std::int64_t slot_count(const Program& program, std::int64_t rank, BufferKind buffer) {
  if (buffer == BufferKind::scratch) return program.ranks[static_cast<std::size_t>(rank)].scratch_slots;
  const std::int64_t in = input_slots(program.spec, rank);
  const std::int64_t out = output_slots(program.spec, rank);
  if (program.in_place) return buffer == BufferKind::output ? std::max(in, out) : 0;
  return buffer == BufferKind::input ? in : out;
}

std::string where(const Program& program, std::int64_t rank, StepId step) {
  const auto& blocks = program.ranks[static_cast<std::size_t>(rank)].blocks;
  const auto& steps = blocks[static_cast<std::size_t>(step.block)].steps;
  return fmt::format("rank {}, block {}, step {} ({})", rank, step.block, step.step,
                     name_of(steps[static_cast<std::size_t>(step.step)].kind));
}

}  // namespace weft
