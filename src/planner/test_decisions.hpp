// Plans of decisions that are drawn at random.
#pragma once

#include "planner/passes.hpp"
#include "planner/search/decisions.hpp"

namespace weft::test {

// `draw(n)` returns a number below n.
template <typename Draw>
WholePlan plan_of_drawn_decisions(const PlanRequest& request, const SharedGraph& graph, const Draw& draw) {
  const DecisionSpace space(request, graph);
  Decisions decisions = space.start();
  for (std::size_t d = 0; d < DecisionSpace::kDimensions; ++d) {
    decisions.chosen[d] = static_cast<std::size_t>(draw(static_cast<std::int64_t>(space.options(d))));
  }
  return overlapped_plan(request, graph, "test", space.overlap(decisions));
}

}  // namespace weft::test
