// Programs in files: MSCCL XML, or the JSON that `weft collective synthesize --out FILE.json` writes.
#pragma once

#include <cstdint>
#include <string>

#include "collective/program.hpp"

namespace weft {

bool is_program_json(const std::string& file);
Program read_program_file(const std::string& file);

// Ranks beside the members: switches that reduce and multicast, which a rank can stand in for.
std::int64_t helpers_of(const Program& program);

}  // namespace weft
