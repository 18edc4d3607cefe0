// Plans as JSON (docs/plan-format.md): written for people and other programs to read, read back as the same
// plan.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "io/plan_conditions.hpp"
#include "plan/plan.hpp"

namespace weft {

// Writes one line per value, operation and block. Throws Error where the plan is larger than a plan file may be. The
// stream reports whether all was written; its owner knows its name and why it failed. Without `conditions` the file
// does not say what the plan's time depends on.
void write_plan_json(std::ostream& out, const Plan& plan, const PlanConditions* conditions = nullptr);

// Returns the programs that a plan's transfers name, each once, in the order in which they are first named.
std::vector<ProgramRef> carried_programs_of(const Plan& plan);

// Throws Error naming the file, the place in it, the value and what is allowed. All ids, sizes and names of the result
// are in range, so it can be walked; verify_plan decides whether it is safe to run. The rank classes and links are not
// in the file: they are rebuilt from model, cluster and layout.
Plan read_plan_json(const std::string& text, const std::string& file_name);

struct SavedPlan {
  Plan plan;
  std::optional<PlanConditions> conditions;  // none where the file does not say them
};
SavedPlan read_saved_plan(const std::string& text, const std::string& file_name);

}  // namespace weft
