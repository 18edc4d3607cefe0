// The program (collective/algorithms.hpp) that a transfer of a plan names.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "collective/algorithms.hpp"
#include "graph/step_graph.hpp"

namespace weft {

// More parts than this cost more per message than they hide; plan files may name no more.
inline constexpr std::int64_t kMaxTransferParts = 32;

// Why algorithm, parts and inner of a transfer do not fit together, in words; empty where they do. Whether `inner`
// divides the group is asked only where `members` is known (not 0).
std::string program_fault(const Communication& communication, std::int64_t members = 0);

// "ring in 4 parts".
std::string program_in_words(const Communication& communication);
// By collective and these words, how many of a graph's transfers are carried out so. Messages between two ranks and
// groups of one are left out.
std::map<std::string, std::map<std::string, std::int64_t>> programs_in_words(const StepGraph& graph);

// all_reduce works in place; all others go from an input to an output buffer, as a plan's values are: a shard and the
// whole are two values.
constexpr bool works_in_place(Collective collective) {
  return collective == Collective::all_reduce;
}

// The generator's recipe by which a group of so many members carries the transfer out. Nothing for `native`, for a
// program that the plan carries, for a group of one and where program_fault() finds something.
std::optional<ProgramRequest> program_of(const Communication& communication, std::int64_t members);

// Why no plan may carry the program, in words; empty where it is proven in all forms of buffers that transfers of its
// collective may need.
std::string carried_program_fault(const Program& program);

// The program itself: the one that the plan carries, with this form of buffers, or what its generator makes. Nothing
// for `native`, for a group of one, where program_fault() finds something, and where a carried program has no such
// form.
std::optional<Program> transfer_program(const Communication& communication, std::int64_t members, bool in_place);

}  // namespace weft
