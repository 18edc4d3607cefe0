#include "plan/verify/programs.hpp"

#include <fmt/format.h>

#include <set>
#include <utility>
#include <vector>

#include "collective/synthesis/switch_ranks.hpp"
#include "graph/transfer_program.hpp"

namespace weft {

std::optional<Violation> check_carried_programs(const Plan& plan) {
  std::set<const CarriedProgram*> proven;
  std::optional<Cluster> cluster;  // made where a program has steps in switches
  std::set<std::pair<const CarriedProgram*, std::vector<Rank>>> wired;
  for (const Operation& op : plan.graph.operations) {
    if (!op.communication || op.communication->algorithm != Algorithm::carried) continue;
    const CarriedProgram& carried = *op.communication->program;
    if (switches_of(carried.program) > 0) {
      if (!cluster) cluster.emplace(plan.cluster);
      const std::vector<Rank>& members = plan.graph.classes[op.rank_class]
                                             .group(op.communication->group)
                                             .scoped(op.communication->scope, op.communication->levels)
                                             .ranks;
      if (wired.insert({&carried, members}).second) {
        if (const std::string fault = switch_fault(carried.program, *cluster, members); !fault.empty()) {
          return Violation{Rule::program, fmt::format("program '{}', which '{}' names, does not fit its ranks: {}",
                                                      carried.origin, describe(op), fault)};
        }
      }
    }
    if (!proven.insert(&carried).second) continue;
    if (const std::string fault = carried_program_fault(carried.program); !fault.empty()) {
      return Violation{Rule::program, fmt::format("program '{}', which '{}' names, is not safe: {}", carried.origin,
                                                  describe(op), fault)};
    }
  }
  return std::nullopt;
}

}  // namespace weft
