// Plans as JSON (docs/plan-format.md): written for people and other programs to read, read back as the same
// plan.
#pragma once

#include <iosfwd>
#include <string>

#include "plan/plan.hpp"

namespace weft {

// One line per value, operation and block. Throws Error where the plan is larger than a plan file may be.
// Whether all was written is the stream's to say: whoever opened it knows its name and why it failed.
void write_plan_json(std::ostream& out, const Plan& plan);

// Throws Error naming the file, the place in it, the value and what is allowed. What it returns has every id,
// size and name in range, and so can be walked; whether it is safe to run is for verify_plan to say. The rank
// classes and links are not in the file: they are built anew from model, cluster and layout.
Plan read_plan_json(const std::string& text, const std::string& file_name);

}  // namespace weft
