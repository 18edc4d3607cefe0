// What paced collectives take is what the cost model predicts for them.
#include <gtest/gtest.h>

#include <map>

#include "cluster/presets.hpp"
#include "comm/paced_device/modelled_time.hpp"
#include "cost/cost_model.hpp"
#include "graph/step_graph.hpp"
#include "model/presets.hpp"

namespace weft {
namespace {

struct PacedCase {
  Layout layout;
  const char* cluster;
};

std::vector<PacedCase> cases() {
  const auto layout = [](std::int64_t tp, std::int64_t dp, std::int64_t pp) {
    return Layout{.tp = tp, .dp = dp, .pp = pp, .micro_batch = 1, .global_batch = 4, .seq = 64};
  };
  PacedCase sharded{layout(2, 2, 1), "gpu:4,link=50GB/s"};
  sharded.layout.zero = 3;
  sharded.layout.sequence_parallel = true;
  return {sharded, {layout(1, 4, 1), "gpu:4,link=1GB/s,latency=7us"}, {layout(1, 1, 2), "gpu:2,link=300GB/s"}};
}

PreparedCall call_of(const StepGraph& graph, const Operation& op) {
  const Communication& c = *op.communication;
  const std::vector<Rank>& members =
      graph.classes[op.rank_class.index()].group(c.group).scoped(c.scope, c.levels).ranks;
  PreparedCall call;
  for (const Rank rank : members) call.members.push_back(rank.value);
  const auto ranks = std::ssize(members);
  call.spec = {.kind = c.collective, .ranks = ranks, .pieces = is_divided(c.collective) ? ranks : 1};
  call.type = c.format.type;
  call.sizes = even_sizes(call.spec, c.bytes.value / size_of(c.format.type).value);
  return call;
}

TEST(PacedTime, IsWhatIsPredicted) {
  std::map<Collective, int> seen;
  for (const PacedCase& of : cases()) {
    const Cluster cluster(parse_cluster(of.cluster));
    StepGraph graph = build_step_graph(model_preset("gpt2"), cluster, of.layout);
    const CostModel cost(graph, cluster, default_profile());
    choose_algorithms(graph, cost);
    for (const Operation& op : graph.operations) {
      if (!op.is_transfer()) continue;
      const TransferCost predicted = cost.transfer(op);
      const ModelledTime paced = modelled_time(cluster, call_of(graph, op));
      EXPECT_EQ(paced.latency, predicted.latency) << describe(op);
      EXPECT_EQ(paced.moving, nanos_from_seconds(predicted.bandwidth_seconds())) << describe(op);
      ++seen[op.communication->collective];
    }
  }
  for (const Collective kind :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::send_recv}) {
    EXPECT_GT(seen[kind], 0) << name_of(kind);
  }
}

}  // namespace
}  // namespace weft
