// Proves that a program carries out its collective under every timing, or says in words where it does not
// (docs/program-verifier.md).
#pragma once

#include <optional>

#include "collective/verify/finding.hpp"
#include "collective/verify/symbolic_run.hpp"

namespace weft {

struct ProgramVerdict {
  std::optional<Finding> violation;  // the first one
  // What every instruction moves, in an order in which they can be executed; without a violation it is complete.
  SymbolicRun run;

  bool accepted() const { return !violation.has_value(); }
  std::string words() const { return violation ? violation->words : std::string(); }
};

// The program may be anything, also from a file.
ProgramVerdict verify_program(const Program& program);

}  // namespace weft
