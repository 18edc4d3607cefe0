#include "planner/partition/row_choice.hpp"

#include <algorithm>
#include <limits>

#include "graph/operation_part.hpp"

namespace weft {
namespace {

struct PassTime {
  double compute = 0, beside = 0, transfers = 0;  // `beside`: weight gradients, which nothing of the pass waits for
};

// Looks at the layers of the first class, which are like those of the others.
PassTime pass_time(const StepGraph& graph, const CostModel& cost, bool forward, std::int32_t parts) {
  PassTime time;
  for (const Operation& op : graph.operations) {
    if (op.rank_class.value != 0 || op.layer < 0 || !op.per_micro_batch || (op.phase == Phase::forward) != forward) {
      continue;
    }
    const bool cut = parts > 1 && may_be_cut_into(graph, op, parts);
    const double all = seconds(cost.alone(cut ? one_of(op, parts) : op)) * (cut ? parts : 1);
    if (!op.communication) {
      (op.phase == Phase::weight_grad ? time.beside : time.compute) += all;
    } else if (op.communication->group == GroupKind::tp) {
      time.transfers += all;
    }
  }
  return time;
}

std::int32_t best_count(const StepGraph& graph, const CostModel& cost, bool forward) {
  std::int32_t best = 1;
  double least = std::numeric_limits<double>::max();
  for (const std::int32_t parts : possible_rows(graph)) {
    const PassTime time = pass_time(graph, cost, forward, parts);
    const double left = std::max(0.0, time.transfers - time.beside);
    const double both = time.beside + std::max(time.compute, left) + std::min(time.compute, left) / parts;
    if (both >= least) continue;
    least = both;
    best = parts;
  }
  return best;
}

}  // namespace

Operation one_of(const Operation& op, std::int32_t parts) {
  Operation part = op;
  part.key.dims[0] /= parts;
  if (part.communication) part.communication->bytes = {part.communication->bytes.value / parts};
  return part;
}

std::vector<std::int32_t> possible_rows(const StepGraph& graph) {
  std::vector<std::int32_t> counts{1};
  for (std::int32_t parts = 2; parts <= kMaxRowCuts; parts *= 2) {
    if (graph.tokens.rows > 0 && graph.tokens.rows % parts == 0) counts.push_back(parts);
  }
  return counts;
}

RowChoice choose_rows(const StepGraph& graph, const CostModel& cost) {
  return {best_count(graph, cost, true), best_count(graph, cost, false)};
}

}  // namespace weft
