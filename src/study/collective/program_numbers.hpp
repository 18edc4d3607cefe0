// Facts about a program: whether it is correct, how large it is, what it moves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/units.hpp"
#include "collective/program.hpp"

namespace weft {

// Says in words why the program does not compute its collective; nothing where it does.
std::optional<std::string> first_violation(const Program& program);

struct ProgramSize {
  std::int64_t blocks = 0, instructions = 0;  // of all ranks
};
ProgramSize size_of(const Program& program);

struct TrafficNumbers {
  std::int64_t messages = 0;       // of all ranks
  std::int64_t rank_messages = 0;  // of the rank that sends most
  Bytes bytes, rank_bytes;         // of all ranks, and of the rank that sends most
};
// `bytes` is the whole buffer (collective/piece_sizes.hpp). The program must be correct.
TrafficNumbers traffic_of(const Program& program, Bytes bytes);

}  // namespace weft
