#include "collective/buffer_form.hpp"

#include <fmt/format.h>

#include "collective/rewrite.hpp"
#include "collective/verify/verify_program.hpp"

namespace weft {
namespace {

Program in_one_buffer(Program program) {
  program.in_place = true;
  return without_idle_copies(std::move(program));
}

// A program may read an input after it has written the output at that place. It then reads a copy.
Program with_saved_input(Program program) {
  program.in_place = true;
  for (std::int64_t rank = 0; rank < program.spec.ranks; ++rank) {
    RankProgram& own = program.ranks[rank];
    const std::int64_t first = own.scratch_slots, in = input_slots(program.spec, rank);
    if (in == 0) continue;
    own.scratch_slots += in;
    const auto copying = static_cast<std::int32_t>(own.blocks.size());
    for (ThreadBlock& block : own.blocks) {
      for (Instruction& step : block.steps) {
        if (reads_src(step.kind) && step.src.buffer == BufferKind::input) {
          step.src = {BufferKind::scratch, first + step.src.slot};
        }
      }
      if (!block.steps.empty()) block.steps.front().after.push_back({copying, 0});
    }
    ThreadBlock save;
    save.steps.push_back({InstructionKind::copy, {BufferKind::input, 0}, {BufferKind::scratch, first}, in, {}});
    own.blocks.push_back(std::move(save));
  }
  return program;
}

// The buffer that the program works in: the output where it has room for everything, otherwise scratch.
Program in_two_buffers(const Program& program) {
  Program result = program;
  result.in_place = false;
  for (std::int64_t rank = 0; rank < program.spec.ranks; ++rank) {
    RankProgram& own = result.ranks[rank];
    const std::int64_t slots = slot_count(program, rank, BufferKind::output);
    const std::int64_t in = input_slots(program.spec, rank), out = output_slots(program.spec, rank);
    const bool in_output = out == slots;
    const std::int64_t first = own.scratch_slots;
    if (!in_output) own.scratch_slots += slots;
    const auto moved = [&](SlotRef slot) {
      const SlotRef at = located(program, rank, slot);
      if (at.buffer == BufferKind::scratch || in_output) return at;
      return SlotRef{BufferKind::scratch, first + at.slot};
    };
    const auto helper = static_cast<std::int32_t>(own.blocks.size());
    std::vector<InstructionId> last;
    for (std::size_t b = 0; b < own.blocks.size(); ++b) {
      ThreadBlock& block = own.blocks[b];
      for (Instruction& step : block.steps) {
        if (reads_src(step.kind)) step.src = moved(step.src);
        if (writes_dst(step.kind)) step.dst = moved(step.dst);
      }
      if (block.steps.empty()) continue;
      if (in > 0) block.steps.front().after.push_back({helper, 0});
      last.push_back({static_cast<std::int32_t>(b), static_cast<std::int32_t>(block.steps.size() - 1)});
    }
    ThreadBlock copies;
    if (in > 0) {
      copies.steps.push_back({InstructionKind::copy, {BufferKind::input, 0}, moved({BufferKind::input, 0}), in, {}});
    }
    if (!in_output && out > 0) {
      copies.steps.push_back(
          {InstructionKind::copy, moved({BufferKind::output, 0}), {BufferKind::output, 0}, out, last});
    }
    if (!copies.steps.empty()) own.blocks.push_back(std::move(copies));
  }
  return result;
}

}  // namespace

BufferForm with_buffers(const Program& program, bool in_place) {
  BufferForm form{program, {}};
  if (program.in_place == in_place) {
    form.fault = verify_program(program).words();
    return form;
  }
  form.program = in_place ? in_one_buffer(program) : in_two_buffers(program);
  ProgramVerdict verdict = verify_program(form.program);
  if (!verdict.accepted() && in_place) {
    form.program = with_saved_input(program);
    verdict = verify_program(form.program);
  }
  if (!verdict.accepted()) {
    form.fault =
        fmt::format("it is written {}, and {} it would be wrong: {}", in_place ? "for two buffers" : "in place",
                    in_place ? "in place" : "with two", verdict.words());
  }
  return form;
}

}  // namespace weft
