#include "study/chakra/chakra_study.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "planner/schedule/cyclic/improve_order.hpp"
#include "planner/schedule/cyclic/list_order.hpp"

namespace weft {
namespace {

std::size_t at(std::int32_t index) {
  return static_cast<std::size_t>(index);
}

// The step as a cyclic problem: its period is the time from the first start to the last end, because everything waits
// for the end of the step before.
CyclicProblem problem_of(const TracedStep& step, const TracedCosts& costs) {
  CyclicProblem problem;
  problem.queues = static_cast<std::int32_t>(step.queues.size()) + 1;
  for (std::size_t i = 0; i < step.operations.size(); ++i) {
    const TracedOperation& own = step.operations[i];
    const SimCost& cost = costs.operations[i];
    problem.operations.push_back(
        {.queue = own.queue, .ns = static_cast<double>((cost.fixed + cost.moving).value), .link = -1});
  }
  const auto end = static_cast<std::int32_t>(step.operations.size());
  problem.operations.push_back({.queue = static_cast<std::int32_t>(step.queues.size())});
  for (const TracedEdge& edge : edges_of(step, {.control = false, .in_order = false})) {
    problem.edges.push_back({edge.from, edge.to, 0});
  }
  for (std::int32_t i = 0; i < end; ++i) {
    problem.edges.push_back({i, end, 0});
    problem.edges.push_back({end, i, 1});
  }
  return problem;
}

std::vector<std::int32_t> without_end(std::vector<std::int32_t> sequence, std::size_t operations) {
  std::erase(sequence, static_cast<std::int32_t>(operations));
  return sequence;
}

// Devices only: hosts are ranks of the timeline too, but what they do is not the step.
RankAccount mean_of_devices(const Timeline& timeline, const Accounting& accounting) {
  RankAccount mean;
  double devices = 0;
  for (std::size_t r = 0; r < timeline.ranks.size(); ++r) {
    if (timeline.ranks[r].queues.front() == "host") continue;
    const RankAccount& own = accounting.ranks[r];
    devices += 1;
    mean.step_s += own.step_s;
    mean.compute_s += own.compute_s;
    mean.slowdown_s += own.slowdown_s;
    mean.exposed_s += own.exposed_s;
    mean.bubble_s += own.bubble_s;
    mean.idle_s += own.idle_s;
    mean.comm_s += own.comm_s;
    for (std::size_t k = 0; k < own.exposed_by.size(); ++k) mean.exposed_by[k] += own.exposed_by[k];
  }
  for (double* term :
       {&mean.step_s, &mean.compute_s, &mean.slowdown_s, &mean.exposed_s, &mean.bubble_s, &mean.idle_s, &mean.comm_s}) {
    *term /= devices;
  }
  for (double& term : mean.exposed_by) term /= devices;
  return mean;
}

ChakraOrder simulated(std::string name, const TracedStep& step, const TracedCosts& costs, TracedOrder order) {
  ChakraOrder result;
  result.name = std::move(name);
  result.timeline = simulate_traced(step, costs, order);
  result.step_s = result.timeline.period_ns * 1e-9;
  result.order = std::move(order);
  return result;
}

void add_accounting(ChakraOrder& order) {
  order.accounting = account(order.timeline);
  order.mean = mean_of_devices(order.timeline, order.accounting);
}

// Searches take memory for every operation several times; larger steps get a list schedule alone.
constexpr std::size_t kMostSearched = 200'000;

std::vector<TracedOrder> searched_orders(const TracedStep& step, const TracedCosts& costs,
                                         const ChakraOptions& options) {
  const CyclicProblem problem = problem_of(step, costs);
  const CyclicGraph graph(problem);
  std::vector<TracedOrder> orders;
  const auto add = [&](std::vector<std::int32_t> sequence) {
    orders.push_back({without_end(std::move(sequence), step.operations.size())});
  };
  const OrderFound listed = list_order(problem);
  add(*graph.sequence_of(listed.orders));
  if (step.operations.size() > kMostSearched) return orders;
  const Improved improved = improve_order(problem, listed.orders, {.visits = options.visits, .seed = options.seed});
  add(*graph.sequence_of(improved.orders));
  return orders;
}

}  // namespace

std::optional<std::string> verify_traced(const TracedStep& step) {
  const std::vector<TracedEdge> edges = edges_of(step, {});
  if (run_order(step, edges).size() == step.operations.size()) return std::nullopt;
  return fmt::format("deadlock: {}", describe_cycle(step, edges));
}

bool ends_one_by_one(const TracedStep& step) {
  return run_order(step, edges_of(step, {.one_by_one = true})).size() == step.operations.size();
}

ChakraStudy study_chakra(TracedStep step, const TracedCosts& costs, const ChakraOptions& options) {
  ChakraStudy study;
  study.step = std::move(step);
  study.warnings = study.step.warnings;
  study.warnings.insert(study.warnings.end(), costs.warnings.begin(), costs.warnings.end());
  const std::size_t count = study.step.operations.size();
  const std::vector<TracedEdge> free = edges_of(study.step, {.control = false, .in_order = false});
  if (run_order(study.step, free).size() != count) {
    fail("the traces deadlock: {}", describe_cycle(study.step, free));
  }
  study.bound = bound_traced(study.step, costs);
  if (study.bound.ns <= 0) fail("{}: all operations take no time: there is nothing to plan", study.step.ranks[0].file);
  std::vector<TracedOrder> own;  // orders of the trace that a search has to beat
  for (const bool one_by_one : {true, false}) {
    const std::string name = one_by_one ? "serial" : "trace";
    const std::vector<TracedEdge> edges = edges_of(study.step, {.one_by_one = one_by_one});
    std::vector<std::int32_t> sequence = run_order(study.step, edges);
    if (sequence.size() != count) {
      study.failed.push_back({name, fmt::format("deadlock: {}", describe_cycle(study.step, edges))});
      continue;
    }
    own.push_back({sequence});
    study.orders.push_back(
        simulated(name, study.step, costs, {std::move(sequence), /*control=*/true, /*one_by_one=*/one_by_one}));
  }
  std::vector<TracedOrder> candidates = searched_orders(study.step, costs, options);
  candidates.insert(candidates.end(), own.begin(), own.end());
  std::optional<ChakraOrder> best;
  for (TracedOrder& candidate : candidates) {
    ChakraOrder order = simulated("weft", study.step, costs, std::move(candidate));
    if (!best || order.step_s < best->step_s) best = std::move(order);
  }
  study.orders.push_back(std::move(*best));
  study.best = study.orders.size() - 1;
  for (ChakraOrder& order : study.orders) add_accounting(order);
  return study;
}

std::vector<ExposedTransfer> exposed_transfers(const Timeline& timeline) {
  SpanIndex index(timeline);
  std::map<std::pair<std::int32_t, std::int32_t>, ExposedTransfer> found;  // by collective and group
  const auto entry = [&](std::int32_t operation) -> ExposedTransfer& {
    const TimelineOperation& own = timeline.operations[at(operation)];
    return found[{own.collective, own.group}];
  };
  for (std::size_t i = 0; i < timeline.operations.size(); ++i) {
    const TimelineOperation& own = timeline.operations[i];
    if (own.activity != Activity::transfer || own.group < 0) continue;
    ExposedTransfer& transfer = entry(static_cast<std::int32_t>(i));
    transfer.collective = own.collective < 0 ? "transfer" : timeline.names[at(own.collective)];
    transfer.group = timeline.names[at(own.group)];
    ++transfer.count;
    transfer.alone_s += static_cast<double>(own.alone.value) * 1e-9;
  }
  for (const ExposedPart& part : exposed_parts(timeline, index)) {
    const TransferPart& transfer = part.transfer;
    if (timeline.operations[at(transfer.operation)].group < 0) continue;
    entry(transfer.operation).exposed_s +=
        static_cast<double>((transfer.end - transfer.begin).value) * 1e-9 / timeline.periods;
  }
  std::vector<ExposedTransfer> transfers;
  for (auto& [key, transfer] : found) transfers.push_back(std::move(transfer));
  std::stable_sort(transfers.begin(), transfers.end(),
                   [](const auto& a, const auto& b) { return a.exposed_s > b.exposed_s; });
  return transfers;
}

}  // namespace weft
