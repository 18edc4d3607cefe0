// Programs in files: MSCCL XML, or the JSON that `weft collective synthesize --out FILE.json` writes.
#pragma once

#include <string>

#include "collective/program.hpp"

namespace weft {

bool is_program_json(const std::string& file);
Program read_program_file(const std::string& file);

}  // namespace weft
