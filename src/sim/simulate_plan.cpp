#include "sim/simulate_plan.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "plan/memory/lifetimes.hpp"
#include "sim/issue_time.hpp"

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
    for (const Edge& edge : unfolded.waits_for(i)) timeline.dependencies.push_back({edge.from, edge.distance});
    timeline.dependency_begin.push_back(static_cast<std::int32_t>(timeline.dependencies.size()));
  }
}

// Bytes that hold something, from the start of the writer to the end of the last reader, over what persists.
void add_memory(const Plan& plan, const Unfolded& unfolded, const SimResult& result, Timeline& timeline) {
  const std::vector<Lifetime> lifetimes = find_lifetimes(plan);
  const std::vector<ValueId> storage = find_storage(plan);
  timeline.memory.resize(plan.classes.size());
  std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> change(plan.classes.size());  // (time, bytes)
  std::vector<std::int64_t> base(plan.classes.size(), 0);
  const auto micro_batches = static_cast<std::int32_t>(plan.graph.micro_batches);
  for (std::size_t v = 0; v < plan.graph.values.size(); ++v) {
    const Value& value = plan.graph.values[v];
    const std::size_t c = value.rank_class.index();
    const std::int64_t bytes = value.bytes().value;
    if (!value.per_micro_batch) {
      if (storage[v].index() == v) base[c] += bytes;
      continue;
    }
    if (lifetimes[v].writers.empty()) continue;
    for (std::int32_t k = result.steady_first; k <= result.steady_first + result.periods; ++k) {
      const std::vector<SimTimes>& times = result.iterations[static_cast<std::size_t>(k)];
      for (std::int32_t mb = 0; mb < micro_batches; ++mb) {
        const auto writer = static_cast<std::size_t>(unfolded.instance_of(lifetimes[v].writers.front(), mb));
        std::int64_t end = times[writer].end.value;
        for (const OpId reader : lifetimes[v].readers) {
          end = std::max(end, times[static_cast<std::size_t>(unfolded.instance_of(reader, mb))].end.value);
        }
        change[c].emplace_back(times[writer].start.value, bytes);
        change[c].emplace_back(end, -bytes);
      }
    }
  }
  for (std::size_t c = 0; c < change.size(); ++c) {
    std::sort(change[c].begin(), change[c].end());
    std::int64_t bytes = base[c];
    for (std::size_t i = 0; i < change[c].size(); ++i) {
      bytes += change[c][i].second;
      const bool last_at_this_time = i + 1 == change[c].size() || change[c][i + 1].first != change[c][i].first;
      if (last_at_this_time) timeline.memory[c].push_back({Nanos{change[c][i].first}, Bytes{bytes}});
    }
  }
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
    problem.operations.push_back(op);
    for (const Edge& edge : unfolded.waits_for(i)) {
      const bool order = edge.kind == EdgeKind::queue || edge.kind == EdgeKind::blocking;
      problem.edges.push_back({edge.from, edge.distance, order});
    }
    problem.edge_begin.push_back(static_cast<std::int64_t>(problem.edges.size()));
  }
  return problem;
}

Timeline simulate_plan(const Plan& plan, const CostModel& cost) {
  const Unfolded unfolded(plan);
  const SimProblem problem = sim_problem(plan, unfolded, cost);
  const SimResult result = simulate(problem);
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
  for (std::size_t k = 0; k < result.iterations.size(); ++k) {
    for (std::size_t i = 0; i < result.iterations[k].size(); ++i) {
      const SimTimes& t = result.iterations[k][i];
      timeline.spans.push_back(
          {static_cast<std::int32_t>(i), static_cast<std::int32_t>(k), t.issued, t.ready, t.start, t.end});
    }
  }
  add_memory(plan, unfolded, result, timeline);
  timeline.steady_begin = result.steady_begin;
  timeline.period_ns = result.period_ns;
  timeline.periods = result.periods;
  return timeline;
}

}  // namespace weft
