// What the verifier says about a program that it does not accept.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collective/program.hpp"

namespace weft {

// The checks in their order: each relies on those before it.
enum class ProgramRule : std::uint8_t {
  structure,  // slots, counts, peers, channels and dependencies are in range
  matching,   // the k-th send of a connection meets a k-th receive of the same count
  deadlock,   // ends under any timing with two or more message slots a connection
  hazard,     // instructions that touch a slot, one of them writing, are ordered
  value       // nothing is read before it is there, each contribution counts once, the postcondition holds
};
std::string_view name_of(ProgramRule rule);

struct RankStep {
  std::int64_t rank = 0;
  InstructionId step;
  friend auto operator<=>(const RankStep&, const RankStep&) = default;
};

struct Finding {
  ProgramRule rule = ProgramRule::structure;
  std::string words;
  std::vector<RankStep> steps;  // those it names, in that order
  std::optional<SlotRef> slot;  // of a hazard, as `located` gives it
};

}  // namespace weft
