// Rewrites of programs that keep what they compute: instructions move, and what `after` names moves with them.
#pragma once

#include <cstdint>
#include <vector>

#include "collective/program.hpp"

namespace weft {

// Where the instructions of one rank went.
class StepPlaces {
 public:
  // Every instruction where it is.
  explicit StepPlaces(const RankProgram& rank);
  void move(InstructionId from, InstructionId to) { place(from) = to; }
  InstructionId of(InstructionId from) const { return places_[from.block][from.step]; }

 private:
  InstructionId& place(InstructionId from) { return places_[from.block][from.step]; }
  std::vector<std::vector<InstructionId>> places_;  // by old block and step
};

// Renames what `after` names, sorted and each once; what the own block has done by then is left out.
void rename_after(RankProgram& rank, const StepPlaces& places);

// What nops wait for, the next instruction of their block waits for. What remains: one nop at the end of a block that
// had some there, and nops that other blocks wait for.
Program without_nops(Program program);

// The reverse: where an instruction waits for several others, nops before it wait for all but the last.
Program with_one_dependency_each(Program program);

// Two programs that differ only in how they are written have the same: slots are where they really lie, nothing stands
// where a kind does not look, dependencies are sorted, there are no nops.
Program normal_form(Program program);

// Instructions on more than `limit` slots become several, the same ones at both ends of a connection. More messages are
// then under way at a time: a program that just fits into two message slots may no longer do so.
Program with_counts_up_to(Program program, std::int64_t limit);

}  // namespace weft
