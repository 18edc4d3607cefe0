#include "io/export/transfer_kinds.hpp"

#include <algorithm>

#include "collective/synthesis/switch_ranks.hpp"

namespace weft {
namespace {

std::int64_t nodes_of(const Cluster& cluster, const GroupView& view) {
  const auto joins_node = [](const LevelSpec& level) { return level.joins == Domain::node; };
  const std::vector<LevelSpec>& levels = cluster.spec().levels;
  const bool has_node_links = std::any_of(levels.begin(), levels.end(), joins_node);
  const std::size_t of_node = cluster.fabrics_of_parts();
  const std::int64_t in_node = has_node_links && of_node < view.within.size() ? view.within[of_node] : 1;
  return (view.size + in_node - 1) / in_node;
}

}  // namespace

TransferAlgorithms transfer_algorithms(const Plan& plan) {
  TransferAlgorithms algorithms;
  const Cluster cluster(plan.cluster);
  for (const Operation& op : plan.graph.operations) {
    if (!op.is_transfer() || op.communication->collective == Collective::send_recv) continue;
    const Communication& communication = *op.communication;
    const ClassGroup& group =
        plan.graph.classes[op.rank_class].group(communication.group).scoped(communication.scope, communication.levels);
    if (group.view.size < 2) continue;
    const CommunicatorShape shape{communication.collective, nodes_of(cluster, group.view), group.view.size};
    const bool in_switches = communication.program && switches_of(communication.program->program) > 0;
    algorithms[shape][communication.bytes].insert({communication.algorithm, in_switches});
  }
  return algorithms;
}

}  // namespace weft
