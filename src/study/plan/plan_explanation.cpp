#include "study/plan/plan_explanation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "sim/simulate_folded.hpp"
#include "sim/simulate_plan.hpp"
#include "study/plan/framework_words.hpp"

namespace weft {
namespace {

constexpr std::size_t kTransfersShown = 3;

std::size_t at(std::int32_t index) {
  return index;
}

bool larger(const ExplainedTransfer& a, const ExplainedTransfer& b) {
  return std::tuple(-a.exposed_s, -a.busy_s, a.kind) < std::tuple(-b.exposed_s, -b.busy_s, b.kind);
}

// Adds `share` of every time of `from`.
void add_share(ExplainedTransfer& sum, const ExplainedTransfer& from, double share) {
  if (from.instances > sum.instances) {
    sum.instances = from.instances;
    sum.bytes = from.bytes;
    sum.alone_s = from.alone_s;
  }
  sum.busy_s += share * from.busy_s;
  sum.hidden_s += share * from.hidden_s;
  sum.exposed_s += share * from.exposed_s;
  sum.beside_s += share * from.beside_s;
  for (const HiddenBehind& h : from.hidden_behind) {
    const auto same = std::find_if(sum.hidden_behind.begin(), sum.hidden_behind.end(),
                                   [&](const HiddenBehind& known) { return known.kind == h.kind; });
    if (same == sum.hidden_behind.end()) {
      sum.hidden_behind.push_back({h.kind, share * h.seconds});
    } else {
      same->seconds += share * h.seconds;
    }
  }
  for (const Exposure& e : from.exposures) {
    const auto same = std::find_if(sum.exposures.begin(), sum.exposures.end(), [&](const Exposure& known) {
      return std::tie(known.reason, known.cause, known.cause_rank, known.waiting) ==
             std::tie(e.reason, e.cause, e.cause_rank, e.waiting);
    });
    if (same == sum.exposures.end()) {
      sum.exposures.push_back(e);
      sum.exposures.back().seconds *= share;
    } else {
      same->seconds += share * e.seconds;
    }
  }
}

std::vector<ExplainedTransfer> mean_over_ranks(const std::vector<StageExplanation>& stages) {
  double ranks = 0;
  for (const StageExplanation& stage : stages) ranks += static_cast<double>(stage.ranks);
  std::map<std::int32_t, ExplainedTransfer> sums;
  for (const StageExplanation& stage : stages) {
    for (const ExplainedTransfer& transfer : stage.transfers) {
      ExplainedTransfer& sum = sums[transfer.kind];
      sum.kind = transfer.kind;
      add_share(sum, transfer, static_cast<double>(stage.ranks) / ranks);
    }
  }
  std::vector<ExplainedTransfer> mean;
  const auto longer = [](const auto& a, const auto& b) { return a.seconds > b.seconds; };
  for (auto& [kind, sum] : sums) {
    std::stable_sort(sum.hidden_behind.begin(), sum.hidden_behind.end(), longer);
    std::stable_sort(sum.exposures.begin(), sum.exposures.end(), longer);
    mean.push_back(std::move(sum));
  }
  std::sort(mean.begin(), mean.end(), larger);
  return mean;
}

// Returns the step of the same plan when one kind of communication costs nothing.
double step_without(SimProblem problem, const ExplainedOperations& operations, std::int32_t kind) {
  for (std::size_t i = 0; i < problem.operations.size(); ++i) {
    if (operations.kind[i] == kind) problem.costs[at(problem.operations[i].cost)] = {};
  }
  return simulate_folded(problem).period_ns * 1e-9;
}

// Returns the ways to carry out the first transfer of each kind, before the policy changed it.
std::map<std::int32_t, ChoiceNode> choices_of_kinds(const WholePlan& whole, const ExplainedOperations& operations,
                                                    const CostModel& cost) {
  const Unfolded& unfolded = whole.unfolded();
  std::map<std::int32_t, ChoiceNode> choices;
  for (std::size_t i = 0; i < unfolded.instances().size(); ++i) {
    const Operation& op = whole.plan().graph.op(unfolded.instances()[i].operation);
    if (!op.communication || choices.contains(operations.kind[i])) continue;
    const OpId origin = op.origins.empty() ? unfolded.instances()[i].operation : op.origins.front().operation;
    choices[operations.kind[i]] = choice_tree(whole.original(), cost, origin);
  }
  return choices;
}

LargestExposure largest_of(const ExplainedTransfer& transfer) {
  std::map<ExposureReason, double> by_reason;
  for (const Exposure& e : transfer.exposures) by_reason[e.reason] += e.seconds;
  const auto main = std::max_element(by_reason.begin(), by_reason.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return {transfer.kind, transfer.exposed_s, main->first, main->second, 0, {}};
}

}  // namespace

ExplainedOperations describe_kinds(const WholePlan& whole, const CostModel& cost, std::vector<OperationKind>& kinds) {
  const Plan& plan = whole.plan();
  using Identity = std::tuple<Role, Phase, Collective, GroupKind>;  // the last two of transfers
  std::map<Identity, std::int32_t> known;
  std::vector<std::int32_t> kind_of;  // by OpId
  for (const Operation& op : plan.graph.operations) {
    const Communication communication = op.communication.value_or(Communication{});
    const Identity identity{op.role, op.phase, communication.collective, communication.group};
    const auto [found, added] = known.try_emplace(identity, static_cast<std::int32_t>(kinds.size()));
    if (added) {
      OperationKind& kind = kinds.emplace_back();
      kind.name = fmt::format("{} {}", name_of(op.role), name_of(op.phase));
      kind.words = framework_words(op, plan.layout);
      kind.is_transfer = op.is_transfer();
      if (op.communication) {
        kind.collective = name_of(communication.collective);
        kind.group = name_of(communication.group);
      }
    }
    kind_of.push_back(found->second);
    OperationKind& kind = kinds[at(found->second)];
    if (op.layer >= 0) {
      kind.first_layer = kind.first_layer < 0 ? op.layer : std::min(kind.first_layer, op.layer);
      kind.last_layer = std::max(kind.last_layer, op.layer);
    }
  }
  const SimProblem problem = sim_problem(whole, cost);
  ExplainedOperations operations;
  const Instances& instances = whole.unfolded().instances();
  for (std::size_t i = 0; i < instances.size(); ++i) {
    operations.kind.push_back(kind_of[instances[i].operation.index()]);
    operations.fixed.push_back(problem.costs[at(problem.operations[i].cost)].fixed);
  }
  return operations;
}

PlanExplanation explain_plan(const PolicyStudy& study, const Profile& profile) {
  const Cluster cluster(study.plan().cluster);
  const CostModel cost(study.plan().graph, cluster, profile, study.programs);
  PlanExplanation result;
  const ExplainedOperations operations = describe_kinds(*study.whole, cost, result.kinds);
  for (std::size_t i = 0; i < study.timeline.operations.size(); ++i) {
    result.kinds[at(operations.kind[i])].traffic = study.timeline.operations[i].traffic;
  }
  SpanIndex index(study.timeline);
  std::vector<std::vector<ExplainedTransfer>> ranks = explain(study.timeline, index, operations);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    std::sort(ranks[r].begin(), ranks[r].end(), larger);
    result.stages.push_back({study.timeline.ranks[r].name, study.timeline.ranks[r].ranks, std::move(ranks[r])});
  }
  result.mean = mean_over_ranks(result.stages);
  const CostModel original_cost(study.whole->original(), cluster, profile, study.programs);
  result.choices = choices_of_kinds(*study.whole, operations, original_cost);
  const SimProblem problem = sim_problem(*study.whole, cost);
  for (const ExplainedTransfer& transfer : result.mean) {
    if (result.largest.size() == kTransfersShown || transfer.exposed_s <= 0) break;
    result.largest.push_back(largest_of(transfer));
    result.largest.back().step_without_s = step_without(problem, operations, transfer.kind);
  }
  return result;
}

}  // namespace weft
