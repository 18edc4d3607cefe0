// Whether a program is well formed, so that the rest of the verifier may index with its numbers. Programs come from
// files too: any number may be anything.
#pragma once

#include <optional>

#include "collective/verify/finding.hpp"

namespace weft {

// Above these a program is refused: what the verifier needs grows with them.
inline constexpr std::int64_t kMaxProgramRanks = std::int64_t{1} << 16;
inline constexpr std::int64_t kMaxProgramSlots = std::int64_t{1} << 24;  // of all ranks and buffers together
inline constexpr std::int64_t kMaxProgramMoves = std::int64_t{1} << 24;  // slots moved, over all instructions
inline constexpr std::int64_t kMaxChannels = std::int64_t{1} << 20;      // as in comm/transport.hpp

std::optional<Finding> check_structure(const Program& program);

}  // namespace weft
