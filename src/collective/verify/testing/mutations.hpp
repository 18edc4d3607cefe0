// Small changes to programs, of the kinds in which generators and files go wrong.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "collective/program.hpp"
#include "collective/verify/testing/random.hpp"

namespace weft::testing {

enum class Mutation : std::uint8_t {
  drop,
  duplicate,
  drop_message,       // the send and its receive
  duplicate_message,  // both
  count_of_message,   // at both ends
  swap_neighbours,    // dependencies on the two follow them
  swap_any,           // of a rank; dependencies stay with the places
  change_kind,
  change_slot,
  change_count,
  change_peer,
  change_channel,
  rename_channel,  // at both ends
  remove_dependency,
  change_dependency,
  add_dependency,
  insert_nop
};
inline constexpr std::array kMutations{Mutation::drop,
                                       Mutation::duplicate,
                                       Mutation::drop_message,
                                       Mutation::duplicate_message,
                                       Mutation::count_of_message,
                                       Mutation::swap_neighbours,
                                       Mutation::swap_any,
                                       Mutation::change_kind,
                                       Mutation::change_slot,
                                       Mutation::change_count,
                                       Mutation::change_peer,
                                       Mutation::change_channel,
                                       Mutation::rename_channel,
                                       Mutation::remove_dependency,
                                       Mutation::change_dependency,
                                       Mutation::add_dependency,
                                       Mutation::insert_nop};
std::string_view name_of(Mutation mutation);

struct Mutant {
  Program program;
  // By rank, block and step: the number of the instruction in the original, counted over all ranks; -1 for new ones.
  std::vector<std::vector<std::vector<std::int32_t>>> origin;
};

Mutant unchanged(const Program& program);
// None where the program has nothing to change in that way at the place that was drawn.
std::optional<Mutant> mutate(const Program& program, Mutation mutation, Random& random);

}  // namespace weft::testing
