#include "plan/verify/programs.hpp"

#include <fmt/format.h>

#include <set>

#include "graph/transfer_program.hpp"

namespace weft {

std::optional<Violation> check_carried_programs(const Plan& plan) {
  std::set<const CarriedProgram*> proven;
  for (const Operation& op : plan.graph.operations) {
    if (!op.communication || op.communication->algorithm != Algorithm::carried) continue;
    const CarriedProgram& carried = *op.communication->program;
    if (!proven.insert(&carried).second) continue;
    if (const std::string fault = carried_program_fault(carried.program); !fault.empty()) {
      return Violation{Rule::program, fmt::format("program '{}', which '{}' names, is not safe: {}", carried.origin,
                                                  describe(op), fault)};
    }
  }
  return std::nullopt;
}

}  // namespace weft
