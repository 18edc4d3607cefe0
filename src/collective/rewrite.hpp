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

// Renames the instructions in `after`, sorts them, removes duplicates, and drops those that their own block already has
// done.
void rename_after(RankProgram& rank, const StepPlaces& places);

// Removes nops: the next instruction of the block waits for what the nop waited for. Nops remain at the end of a block
// (one) and where other blocks wait for them.
Program without_nops(Program program);

// In place, copies of an input onto the same place of the output become nops: they move nothing.
Program without_idle_copies(Program program);

// The reverse of without_nops: where an instruction waits for several others, nops before it wait for all but the last
// of them.
Program with_one_dependency_each(Program program);

// Returns a form that is equal for programs which differ only in how they are written: slots are named by where they
// lie, unused fields are empty, dependencies are sorted, and there are no nops.
Program normal_form(Program program);

// Splits instructions on more than `limit` slots, alike at both ends of a connection. More messages are then under way
// at once, so a program that just fits into two message slots may no longer do so.
Program with_counts_up_to(Program program, std::int64_t limit);

}  // namespace weft
