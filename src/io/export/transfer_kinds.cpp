#include "io/export/transfer_kinds.hpp"

#include <algorithm>

#include "collective/synthesis/switch_ranks.hpp"

namespace weft {
namespace {

std::int64_t nodes_of(const ClusterSpec& cluster, const GroupView& view) {
  const auto joins_node = [](const LevelSpec& level) { return level.joins == Domain::node; };
  const bool has_node_links = std::any_of(cluster.levels.begin(), cluster.levels.end(), joins_node);
  const std::int64_t in_node = has_node_links && !view.within.empty() ? view.within.front() : 1;
  return (view.size + in_node - 1) / in_node;
}

}  // namespace

TransferAlgorithms transfer_algorithms(const Plan& plan) {
  TransferAlgorithms algorithms;
  for (const Operation& op : plan.graph.operations) {
    if (!op.is_transfer() || op.communication->collective == Collective::send_recv) continue;
    const Communication& communication = *op.communication;
    const ClassGroup& group = plan.graph.classes[op.rank_class].group(communication.group).scoped(communication.scope);
    if (group.view.size < 2) continue;
    const CommunicatorShape shape{communication.collective, nodes_of(plan.cluster, group.view), group.view.size};
    const bool in_switches = communication.program && switches_of(communication.program->program) > 0;
    algorithms[shape][communication.bytes].insert({communication.algorithm, in_switches});
  }
  return algorithms;
}

}  // namespace weft
