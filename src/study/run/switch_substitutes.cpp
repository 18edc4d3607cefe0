#include "study/run/switch_substitutes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "collective/synthesis/switch_ranks.hpp"
#include "cost/cost_model.hpp"
#include "graph/transfer_program.hpp"

namespace weft {
namespace {

bool has_switch_program(const Operation& op) {
  return op.communication && op.communication->program && switches_of(op.communication->program->program) > 0;
}

}  // namespace

std::vector<std::string> substitute_switch_programs(Plan& plan) {
  if (std::ranges::none_of(plan.graph.operations, has_switch_program)) return {};
  if (plan.cluster.topology) {
    plan.cluster.topology = SharedTopology(without_switch_abilities(*plan.cluster.topology));
  }
  const bool library = plan.cluster.execution.collectives == CollectiveMaker::library;
  // The same profile on all ranks, whatever a rank has measured: they must choose alike.
  const Cluster cluster(plan.cluster);
  const StepGraph planned = plan.graph;
  const CostModel cost(planned, cluster, default_profile());
  std::map<std::pair<std::string, std::string>, std::int64_t> replaced;
  for (Operation& op : plan.graph.operations) {
    if (!has_switch_program(op)) continue;
    const std::string before = program_in_words(*op.communication);
    cost.choose_program(op);
    const bool by_library = library && op.communication->algorithm != Algorithm::carried;
    ++replaced[{before, by_library ? "the library's call" : program_in_words(*op.communication)}];
  }
  std::vector<std::string> sentences;
  for (const auto& [programs, transfers] : replaced) {
    sentences.push_back(
        fmt::format("{} of the plan's transfers have steps in switches ({}), where no transport here makes sums: "
                    "{} carries them out instead",
                    transfers, programs.first, programs.second));
  }
  return sentences;
}

}  // namespace weft
