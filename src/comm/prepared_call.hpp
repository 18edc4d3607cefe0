// What follows from a prepared call alone.
#pragma once

#include <cstdint>

#include "collective/lowered.hpp"
#include "comm/call_check.hpp"
#include "comm/communicator.hpp"

namespace weft {

// Which of the members a rank of the transport is. Throws Error where it is none, or where the call makes no sense.
std::int64_t member_of(const PreparedCall& call, std::int64_t rank);
// Returns the note by which members compare the call; its turn is filled in later.
CallNote note_of(const PreparedCall& call);
// Its program's name, or what it is without one.
std::string program_in_words(const PreparedCall& call);
// For reduce_scatter: the place of a member's own contribution to the piece that it will receive.
ByteRange own_part_of_input(const PreparedCall& call, std::int64_t member);

}  // namespace weft
