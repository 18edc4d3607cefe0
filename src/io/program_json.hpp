// Programs by value as JSON (docs/plan-format.md): in plan files, and in the cache of programs made for topologies.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "collective/carried_program.hpp"

namespace weft {

nlohmann::ordered_json program_to_json(const Program& program);
nlohmann::ordered_json carried_to_json(const CarriedProgram& carried);
// A file with one program (`weft collective synthesize --out FILE.json`). Its last ranks may be helpers, as in plans:
// switches that reduce and multicast.
Program read_program_json(const std::string& text, const std::string& file_name);
// Reading what the writers write gives the same program. Throws Error with the place, the key, the value and what was
// allowed. Whether the program is right is for the verifier to say.
CarriedProgram carried_from_json(const nlohmann::json& value, const std::string& where);

}  // namespace weft
