// Checks that a program is well formed, so that the rest of the verifier may index with its numbers. Programs also come
// from files, so any number may be wrong.
#pragma once

#include <optional>

#include "collective/verify/finding.hpp"

namespace weft {

// Larger programs are refused, because the verifier's needs grow with these numbers.
inline constexpr std::int64_t kMaxProgramRanks = std::int64_t{1} << 16;
inline constexpr std::int64_t kMaxProgramSlots = std::int64_t{1} << 24;  // of all ranks and buffers together
inline constexpr std::int64_t kMaxProgramMoves = std::int64_t{1} << 24;  // slots moved, over all instructions
inline constexpr std::int64_t kMaxChannels = std::int64_t{1} << 20;      // as in comm/transport.hpp

std::optional<Finding> check_structure(const Program& program);

}  // namespace weft
