// Executes a program on symbols: slots hold (piece, contributions) instead of numbers.
//
// One order of execution is enough to know the result of all of them, provided that conflicting instructions are
// ordered (verify/verify_program.hpp proves that). The trace says what every instruction moved, which later gives its
// bytes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collective/program.hpp"

namespace weft {

struct StepTrace {
  std::int64_t rank = 0;
  InstructionId step;
  // By slot: what was sent, received, copied, or the result of the reduction.
  std::vector<Content> moved;
};

struct SymbolicRun {
  std::vector<StepTrace> steps;          // in an order in which they can be executed
  std::optional<std::string> violation;  // the first one, in words; the trace ends there
};

// Runs with room for `message_slots` messages in every connection, then compares with the postcondition. Slot numbers,
// peers and dependencies must be in range (check_structure in verify/structure.hpp).
SymbolicRun run_symbolically(const Program& program, std::int64_t message_slots = 2);

}  // namespace weft
