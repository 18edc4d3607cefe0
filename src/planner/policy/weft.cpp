#include "planner/policy/weft.hpp"

#include "base/error.hpp"
#include "planner/policy/policy.hpp"
#include "planner/search/plan_searcher.hpp"

namespace weft {

Overlap weft_overlap(const PlanRequest& request, const StepGraph& graph) {
  WEFT_CHECK(request.search.step_seconds != nullptr);
  std::vector<Overlap> others;
  for (const std::string& policy : policy_names()) {
    if (!searches(policy)) others.push_back(decide_overlap(request, graph, policy));
  }
  return PlanSearcher(request, graph).best_of(others);
}

}  // namespace weft
