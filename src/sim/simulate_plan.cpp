#include "sim/simulate_plan.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "plan/describe_operations.hpp"
#include "sim/issue_time.hpp"
#include "sim/simulate_folded.hpp"
#include "timeline/folded_spans.hpp"

namespace weft {
namespace {

SimCost transfer_cost(const TransferCost& cost) {
  SimCost result;
  result.fixed = cost.latency;
  const double alone = cost.moving_seconds();
  result.moving = nanos_from_seconds(alone);
  for (const LinkWork& w : cost.work) {
    if (w.seconds > 0) result.use.push_back({w.resource.value, w.seconds / alone});
  }
  return result;
}

// The slow-downs that its mover brings, where that is not the library.
void add_slowdowns(const Operation& op, const CostModel& cost, SimCost& result) {
  if (op.communication->mover.is_library()) return;
  const CostModel::Interference own = cost.interference(op);
  result.compute_slowdown = own.compute;
  result.transfer_slowdown = own.transfer;
  result.waits_aside = op.communication->mover.copy_engine;
}

// Finds one cost for each operation; members of a transfer across classes share theirs.
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
      if (first) {
        costs.push_back(transfer_cost(joint.at(transfer)));
        add_slowdowns(op, cost, costs.back());
      }
      index.push_back(it->second);
      continue;
    }
    index.push_back(static_cast<std::int32_t>(costs.size()));
    costs.push_back(op.communication ? transfer_cost(cost.transfer(op)) : SimCost{cost.compute(op), {}, {}});
    if (op.communication) add_slowdowns(op, cost, costs.back());
  }
  return index;
}

// Some class waits for these transfers on the spot. (What waits for others wakes when they end: SimRank::wake.) So
// their links were idle before.
void add_wakes(const Plan& plan, const CostModel& cost, const std::vector<std::int32_t>& cost_of,
               std::vector<SimCost>& costs) {
  std::vector<bool> added(costs.size(), false);
  for (std::size_t i = 0; i < plan.issues.size(); ++i) {
    const std::size_t index = cost_of[i];
    if (!plan.issues[i].blocking || added[index] || costs[index].fixed + costs[index].moving == Nanos{0}) continue;
    added[index] = true;
    const Operation& op = plan.graph.operations[i];
    costs[index].fixed += cost.wake(op.rank_class) + cost.added_by_pause(op);
  }
}

SimQueue queue_of(QueueKind kind) {
  switch (kind) {
    case QueueKind::compute:
      return SimQueue::compute;
    case QueueKind::extra:
      return SimQueue::extra;
    case QueueKind::communication:
      break;
  }
  return SimQueue::transfer;
}

// A hundred days of nanoseconds are all that a double counts one by one, and several steps are simulated.
void require_a_step_of_days(const SimProblem& problem) {
  constexpr double kMaxDays = 10, kNanosOfADay = 86'400e9;
  std::vector<double> busy(problem.ranks.size(), 0);
  for (const SimOperation& op : problem.operations) {
    const SimCost& cost = problem.costs[op.cost];
    const double alone = static_cast<double>(cost.fixed.value) + static_cast<double>(cost.moving.value);
    busy[op.rank] += alone;
  }
  const double days = *std::max_element(busy.begin(), busy.end()) / kNanosOfADay;
  if (days > kMaxDays) {
    fail(
        "a rank's operations of one step take {:.0f} days, at most {:.0f} can be simulated: is the model's shape "
        "right?",
        days, kMaxDays);
  }
}

// Returns the problem, and the cost of each operation of the plan.
std::pair<SimProblem, std::vector<std::int32_t>> problem_of(const WholePlan& whole, const CostModel& cost) {
  const Plan& plan = whole.plan();
  const Unfolded& unfolded = whole.unfolded();
  SimProblem problem;
  problem.resources = static_cast<std::int32_t>(cost.link_resources());
  for (std::int32_t r = 0; r < problem.resources; ++r) {
    problem.burst.push_back(nanos_from_seconds(cost.burst_seconds(ResourceId{r})));
  }
  if (std::all_of(problem.burst.begin(), problem.burst.end(), [](Nanos burst) { return burst == Nanos{0}; })) {
    problem.burst.clear();
  }
  for (std::size_t c = 0; c < plan.graph.classes.size(); ++c) {
    const CostModel::Interference interference = cost.interference(make_id<ClassId>(c));
    problem.ranks.push_back({.compute_slowdown = interference.compute,
                             .transfer_slowdown = interference.transfer,
                             .wake = cost.wake(make_id<ClassId>(c)),
                             .further_slowdown = interference.further,
                             .waiting_slowdown = interference.waiting});
  }
  std::vector<std::int32_t> cost_of = cost_of_operations(plan.graph, cost, problem.costs);
  add_wakes(plan, cost, cost_of, problem.costs);
  add_issue_time(plan, cost, cost_of, problem.costs);
  const Instances& instances = unfolded.instances();
  std::size_t edges = 0;
  for (const InstanceId i : instances.ids()) edges += unfolded.waits_for(i).size();
  if (edges > INT32_MAX) fail("the plan has {} dependencies a step, at most {} can be simulated", edges, INT32_MAX);
  problem.edges.reserve(edges);
  problem.operations.reserve(instances.size());
  problem.edge_begin.reserve(instances.size() + 1);
  problem.edge_begin.push_back(0);
  for (const InstanceId i : instances.ids()) {
    const Instance& instance = instances[i];
    const ClassPlan& class_plan = plan.classes[instance.rank_class];
    problem.operations.push_back({instance.rank_class.value, queue_of(class_plan.queues[instance.queue].kind),
                                  cost_of[instance.operation.index()], instance.joint, instance.chain_position});
    for (const Edge& edge : unfolded.waits_for(i)) {
      const bool order = edge.kind == EdgeKind::queue || edge.kind == EdgeKind::blocking;
      const bool memory = edge.kind == EdgeKind::reuse || edge.kind == EdgeKind::wait;
      problem.edges.push_back({edge.from.value, edge.distance, order, memory});
    }
    problem.edge_begin.push_back(static_cast<std::int32_t>(problem.edges.size()));
  }
  require_a_step_of_days(problem);
  return {std::move(problem), std::move(cost_of)};
}

}  // namespace

void add_simulated(const FoldedResult& result, Timeline& timeline) {
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
  timeline.steady_first = result.steady_first;
  timeline.steady_begin = result.steady_begin;
  timeline.period_ns = result.period_ns;
  timeline.periods = result.periods;
}

SimProblem sim_problem(const WholePlan& whole, const CostModel& cost) {
  return problem_of(whole, cost).first;
}

double simulated_period_ns(const WholePlan& whole, const CostModel& cost) {
  return simulate_folded(problem_of(whole, cost).first, {}).period_ns;
}

Timeline simulate_plan(const WholePlan& whole, const CostModel& cost, const SimOptions& options) {
  const Plan& plan = whole.plan();
  const Unfolded& unfolded = whole.unfolded();
  auto [problem, cost_of] = problem_of(whole, cost);
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
  std::vector<Nanos> alone;
  for (const std::int32_t index : cost_of) {
    const SimCost& operation = problem.costs[index];
    alone.push_back(operation.fixed + operation.moving);
  }
  const std::vector<TimelineOperation> templates = describe_operations(plan, alone, options.names, timeline);
  timeline.operations.reserve(unfolded.instances().size());
  for (const Instance& instance : unfolded.instances()) {
    TimelineOperation& op = timeline.operations.emplace_back(templates[instance.operation.index()]);
    op.micro_batch = instance.micro_batch;
    op.transfer = instance.joint.value;
  }
  timeline.dependency_begin = std::move(problem.edge_begin);
  timeline.dependencies = std::move(problem.edges);
  add_simulated(result, timeline);
  return timeline;
}

}  // namespace weft
