// What the collective commands say about a program: is it right, how large is it, what does it move.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/units.hpp"
#include "collective/program.hpp"

namespace weft {

// Why the program does not compute its collective, in words.
std::optional<std::string> first_violation(const Program& program);

struct ProgramSize {
  std::int64_t blocks = 0, instructions = 0;  // of all ranks
};
ProgramSize size_of(const Program& program);

struct TrafficNumbers {
  std::int64_t messages = 0;       // of all ranks
  std::int64_t rank_messages = 0;  // of the rank that sends most
  Bytes bytes, rank_bytes;         // the same
};
// `bytes` is the whole buffer (collective/piece_sizes.hpp). The program must be right.
TrafficNumbers traffic_of(const Program& program, Bytes bytes);

}  // namespace weft
