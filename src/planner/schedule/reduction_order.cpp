#include "planner/schedule/reduction_order.hpp"

#include <algorithm>

#include "planner/partition/buckets.hpp"
#include "planner/schedule/blocks.hpp"

namespace weft {
namespace {

// As last_gradient_writers, for the order in which the blocks have the operations now: the first of a block counts as
// the one that the graph has first, and so on.
std::vector<std::int32_t> last_writers_in_order(const Plan& plan) {
  StepGraph renumbered = plan.graph;
  std::vector<OpId> number(plan.graph.operations.size());
  for (std::size_t i = 0; i < number.size(); ++i) number[i] = make_id<OpId>(i);
  for (const ClassPlan& c : plan.classes) {
    for (const IssueBlock& block : c.blocks) {
      std::vector<OpId> sorted = block.operations;
      std::sort(sorted.begin(), sorted.end());
      for (std::size_t i = 0; i < sorted.size(); ++i) number[block.operations[i].index()] = sorted[i];
    }
  }
  for (std::size_t i = 0; i < number.size(); ++i) renumbered.operations[number[i].index()] = plan.graph.operations[i];
  const std::vector<std::int32_t> of_renumbered = last_gradient_writers(renumbered);
  std::vector<std::int32_t> result(number.size());
  for (std::size_t i = 0; i < number.size(); ++i) result[i] = of_renumbered[number[i].index()];
  return result;
}

}  // namespace

void order_reductions_by_backward(Plan& plan, bool graph_order) {
  order_reductions(plan, graph_order ? last_gradient_writers(plan.graph) : last_writers_in_order(plan));
}

}  // namespace weft
