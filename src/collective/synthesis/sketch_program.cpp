#include "collective/synthesis/sketch_program.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "cluster/topology_cuts.hpp"
#include "collective/algorithm/holdings.hpp"
#include "collective/synthesis/sketch_times.hpp"

namespace weft {
namespace {

struct GatherPlan {
  LogicalTopology logical;
  std::vector<TimedMessages> ways;  // by order, then apart and joined
  bool by_solver = false;
};

constexpr ChunkOrder kOrders[] = {ChunkOrder::longest_way_first, ChunkOrder::first_ready_first};

GatherPlan gather_plan(const Topology& topology, const Sketch& sketch, const RoutingOptions& options) {
  GatherPlan plan{logical_topology(topology, sketch), {}, false};
  const SketchRoutes routes = route_chunks(plan.logical, sketch, options);
  plan.by_solver = routes.by_solver;
  for (const ChunkOrder order : kOrders) {
    plan.ways.push_back(order_chunks(plan.logical, routes.chunks, options.chunk_bytes, order));
    plan.ways.push_back(join_chunks(plan.logical, routes.chunks, options.chunk_bytes, plan.ways.back()));
  }
  return plan;
}

Pieces pieces_of(const SketchMessage& message) {
  return consecutive(message.chunks.front(), std::ssize(message.chunks));
}

void copy_along(Holdings& holdings, const GatherPlan& plan, std::size_t way) {
  for (const SketchMessage& message : plan.ways[way].messages) {
    const LogicalEdge& edge = plan.logical.edges[message.edge];
    holdings.copy({.from = edge.from, .to = edge.to, .pieces = pieces_of(message)});
  }
}

void reduce_along(Holdings& holdings, const GatherPlan& plan, std::size_t way) {
  const std::vector<SketchMessage>& messages = plan.ways[way].messages;
  for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
    const LogicalEdge& edge = plan.logical.edges[message->edge];
    holdings.reduce({.from = edge.to, .to = edge.from, .pieces = pieces_of(*message)});
  }
}

}  // namespace

std::vector<FamilyMember> sketch_family(const Topology& topology, const FamilyRequest& request, const Sketch& sketch,
                                        double solver_seconds) {
  const bool gathers = request.kind == Collective::all_gather || request.kind == Collective::all_reduce;
  const bool reduces = request.kind == Collective::reduce_scatter || request.kind == Collective::all_reduce;
  if (!gathers && !reduces) {
    fail("{}: sketches are for all_gather, reduce_scatter and all_reduce, not for {}", sketch.name,
         name_of(request.kind));
  }
  const std::int64_t ranks = std::ssize(topology.devices()), chunks = ranks * sketch.chunks;
  const RoutingOptions options{request.bytes / static_cast<double>(chunks), solver_seconds};
  const GatherPlan down = gathers ? gather_plan(topology, sketch, options) : GatherPlan{};
  const GatherPlan up = reduces ? gather_plan(reversed(topology), sketch, options) : GatherPlan{};
  const bool by_solver = (!gathers || down.by_solver) && (!reduces || up.by_solver);
  std::vector<FamilyMember> family;
  for (std::size_t way = 0; way < 2 * std::size(kOrders); ++way) {
    // Sums stay apart: a message that completes one of its chunks must complete all (collective/lowered.hpp).
    const std::size_t apart = way - way % 2;
    const bool is_joined = way != apart;
    if (is_joined && (!gathers || down.ways[way].messages == down.ways[apart].messages)) continue;
    ProgramBuilder builder("sketch", {request.kind, ranks, 0, chunks}, request.in_place);
    Holdings holdings(builder);
    if (reduces) reduce_along(holdings, up, apart);
    if (gathers) copy_along(holdings, down, way);
    holdings.settle();
    family.push_back(
        {fmt::format("{}{}, {}{}", sketch.name, by_solver ? " routed by CBC" : "",
                     kOrders[way / 2] == ChunkOrder::longest_way_first ? "longest way first" : "first ready first",
                     is_joined ? ", chunks joined" : ""),
         std::move(builder).finish()});
  }
  return family;
}

}  // namespace weft
