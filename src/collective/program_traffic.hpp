// What a program sends: bytes and messages by rank and by pair of ranks, and how many messages follow each other.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/units.hpp"
#include "collective/piece_sizes.hpp"
#include "collective/program.hpp"

namespace weft {

struct MessageCount {
  Bytes bytes;
  std::int64_t messages = 0;
  friend bool operator==(const MessageCount&, const MessageCount&) = default;
};

struct ProgramTraffic {
  std::vector<MessageCount> sent;  // by rank, helpers behind the members
  std::map<std::pair<std::int64_t, std::int64_t>, MessageCount>
      between;                             // by (source, destination), where there is any
  std::vector<std::int64_t> instructions;  // by rank
  MessageCount total;
  // The longest chain of messages, each sent after the one before: on the same connection, after its arrival, or in
  // turn. Each costs at least one latency.
  std::int64_t longest_chain = 0;
};

// `sizes` in elements of `element` bytes each. Throws Error where the program does not reach its postcondition.
ProgramTraffic program_traffic(const Program& program, const PieceSizes& sizes, Bytes element);

}  // namespace weft
