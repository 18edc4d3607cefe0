#include "sim/simulate_plan.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "sim/issue_time.hpp"
#include "sim/simulate_folded.hpp"
#include "timeline/folded_spans.hpp"

namespace weft {
namespace {

SimCost transfer_cost(const TransferCost& cost) {
  SimCost result;
  result.fixed = cost.latency;
  const double slowest = cost.bandwidth_seconds();
  result.moving = nanos_from_seconds(slowest);
  for (const LinkWork& w : cost.work) {
    if (w.seconds > 0) result.use.push_back({w.resource.value, w.seconds / slowest});
  }
  return result;
}

TrafficKind traffic_kind(const Operation& op) {
  switch (op.role) {
    case Role::grad_reduce:
      return TrafficKind::dp_grad;
    case Role::param_gather:
      return TrafficKind::param_gather;
    case Role::tied_reduce:
    case Role::norm_reduce:
      return TrafficKind::other;
    default:
      break;
  }
  switch (op.communication->group) {
    case GroupKind::tp:
    case GroupKind::etp:
      return TrafficKind::tp;
    case GroupKind::cp:
      return TrafficKind::cp;
    case GroupKind::ep:
      return TrafficKind::ep;
    case GroupKind::pp_prev:
    case GroupKind::pp_next:
      return TrafficKind::pp;
    default:
      return TrafficKind::other;
  }
}

// One cost for each operation; members of a transfer across classes share theirs.
std::vector<std::int32_t> cost_of_operations(const StepGraph& graph, const CostModel& cost,
                                             std::vector<SimCost>& costs) {
  std::map<std::int32_t, TransferCost> joint;
  for (const Operation& op : graph.operations) {
    if (!op.communication || op.communication->transfer < 0) continue;
    const TransferCost own = cost.transfer(op);
    const auto [it, first] = joint.try_emplace(op.communication->transfer, own);
    if (!first) it->second = joined(it->second, own);
  }
  std::map<std::int32_t, std::int32_t> joint_index;
  std::vector<std::int32_t> index;
  for (const Operation& op : graph.operations) {
    if (op.communication && op.communication->transfer >= 0) {
      const std::int32_t transfer = op.communication->transfer;
      const auto [it, first] = joint_index.try_emplace(transfer, static_cast<std::int32_t>(costs.size()));
      if (first) costs.push_back(transfer_cost(joint.at(transfer)));
      index.push_back(it->second);
      continue;
    }
    index.push_back(static_cast<std::int32_t>(costs.size()));
    costs.push_back(op.communication ? transfer_cost(cost.transfer(op)) : SimCost{cost.compute(op), {}, {}});
  }
  return index;
}

class Names {
 public:
  explicit Names(Timeline& timeline) : timeline_(timeline) {}
  std::int32_t operator()(std::string name) {
    const auto [it, added] = index_.try_emplace(std::move(name), static_cast<std::int32_t>(timeline_.names.size()));
    if (added) timeline_.names.push_back(it->first);
    return it->second;
  }

 private:
  Timeline& timeline_;
  std::map<std::string, std::int32_t> index_;
};

void describe_operations(const Plan& plan, const Unfolded& unfolded, const SimProblem& problem, Timeline& timeline) {
  Names names(timeline);
  std::vector<std::int32_t> name, phase, group;
  for (const Operation& op : plan.graph.operations) {
    name.push_back(names(describe(op)));
    phase.push_back(names(std::string(name_of(op.phase))));
    group.push_back(op.communication ? names(std::string(name_of(op.communication->group))) : -1);
  }
  timeline.operations.reserve(unfolded.instances().size());
  timeline.dependencies.reserve(problem.edges.size());
  timeline.dependency_begin.reserve(unfolded.instances().size() + 1);
  timeline.dependency_begin.push_back(0);
  for (std::size_t i = 0; i < unfolded.instances().size(); ++i) {
    const Instance& instance = unfolded.instances()[i];
    const Operation& op = plan.graph.op(instance.operation);
    TimelineOperation t;
    t.name = name[instance.operation.index()];
    t.phase = phase[instance.operation.index()];
    t.group = group[instance.operation.index()];
    t.micro_batch = instance.micro_batch;
    t.rank = instance.rank_class;
    t.queue = instance.queue;
    t.transfer = instance.joint;
    if (op.communication) {
      t.activity = Activity::transfer;
      t.traffic = traffic_kind(op);
      t.bytes = op.communication->bytes;
      t.receives = op.communication->collective == Collective::send_recv && !op.communication->sends;
    }
    const SimCost& cost = problem.costs[static_cast<std::size_t>(problem.operations[i].cost)];
    t.alone = cost.fixed + cost.moving;
    timeline.operations.push_back(t);
    for (std::int64_t e = problem.edge_begin[i]; e < problem.edge_begin[i + 1]; ++e) {
      const SimEdge& edge = problem.edges[static_cast<std::size_t>(e)];
      timeline.dependencies.push_back({edge.from, edge.distance, edge.queue_order});
    }
    timeline.dependency_begin.push_back(static_cast<std::int32_t>(timeline.dependencies.size()));
  }
}

// Single operations and slowed ones as spans, the rest folded.
void add_spans(const FoldedResult& result, Timeline& timeline) {
  for (std::size_t k = 0; k < result.iterations.size(); ++k) {
    const auto iteration = static_cast<std::int32_t>(k);
    for_each_stretch(result.folding, result.iterations[k], [&](const Stretch& stretch) {
      if (!stretch.slowed && stretch.count > 1) {
        timeline.folded.push_back({stretch.first, stretch.count, iteration, stretch.start});
      } else {
        timeline.spans.push_back({stretch.first, iteration, stretch.start, stretch.start, stretch.start, stretch.end});
      }
    });
  }
  if (timeline.folded.empty()) add_waits(timeline);
}

}  // namespace

SimProblem sim_problem(const Plan& plan, const Unfolded& unfolded, const CostModel& cost) {
  SimProblem problem;
  problem.resources = static_cast<std::int32_t>(cost.link_resources());
  for (const RankClass& c : plan.graph.classes) {
    problem.ranks.push_back({c.device.compute_slowdown, c.device.transfer_slowdown});
  }
  const std::vector<std::int32_t> cost_of = cost_of_operations(plan.graph, cost, problem.costs);
  add_issue_time(plan, cost, cost_of, problem.costs);
  problem.operations.reserve(unfolded.instances().size());
  problem.edge_begin.reserve(unfolded.instances().size() + 1);
  problem.edge_begin.push_back(0);
  for (std::size_t i = 0; i < unfolded.instances().size(); ++i) {
    const Instance& instance = unfolded.instances()[i];
    const Queue& queue =
        plan.classes[static_cast<std::size_t>(instance.rank_class)].queues[static_cast<std::size_t>(instance.queue)];
    SimOperation op;
    op.rank = instance.rank_class;
    op.lane = queue.kind == QueueKind::compute ? SimLane::compute
              : queue.kind == QueueKind::extra ? SimLane::extra
                                               : SimLane::transfer;
    op.cost = cost_of[instance.operation.index()];
    op.joint = instance.joint;
    op.chain = instance.chain_position;
    problem.operations.push_back(op);
    for (const Edge& edge : unfolded.waits_for(i)) {
      const bool order = edge.kind == EdgeKind::queue || edge.kind == EdgeKind::blocking;
      problem.edges.push_back({edge.from, edge.distance, order});
    }
    problem.edge_begin.push_back(static_cast<std::int64_t>(problem.edges.size()));
  }
  return problem;
}

Timeline simulate_plan(const Plan& plan, const CostModel& cost, const SimOptions& options) {
  return simulate_plan(plan, Unfolded(plan), cost, options);
}

Timeline simulate_plan(const Plan& plan, const Unfolded& unfolded, const CostModel& cost, const SimOptions& options) {
  const SimProblem problem = sim_problem(plan, unfolded, cost);
  const FoldedResult result = simulate_folded(problem, options);
  Timeline timeline;
  for (std::size_t c = 0; c < plan.classes.size(); ++c) {
    TimelineRank rank;
    rank.name = plan.graph.classes[c].name;
    rank.rank = plan.graph.classes[c].representative;
    rank.ranks = plan.graph.classes[c].ranks;
    for (const Queue& queue : plan.classes[c].queues) rank.queues.push_back(queue.name);
    timeline.ranks.push_back(std::move(rank));
  }
  describe_operations(plan, unfolded, problem, timeline);
  add_spans(result, timeline);
  timeline.steady_first = result.steady_first;
  timeline.steady_begin = result.steady_begin;
  timeline.period_ns = result.period_ns;
  timeline.periods = result.periods;
  return timeline;
}

}  // namespace weft
