#include "planner/policy/weft.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "planner/policy/policy.hpp"
#include "planner/search/plan_searcher.hpp"

namespace weft {
namespace {

std::vector<Overlap> of_other_policies(const PlanRequest& request, const StepGraph& graph) {
  std::vector<Overlap> others;
  for (const std::string& policy : policy_names()) {
    if (!searches(policy)) others.push_back(decide_overlap(request, graph, policy));
  }
  return others;
}

// The i-th of several searches one after the other.
PlanRequest with_share_of_progress(PlanRequest request, std::size_t i, std::size_t searches) {
  if (request.search.progress) {
    request.search.progress = [whole = request.search.progress, i, searches](double share) {
      whole((static_cast<double>(i) + share) / static_cast<double>(searches));
    };
  }
  return request;
}

// With ZeRO 3 the schedule says when the head's parameters are gathered, so that graphs differ.
bool has_named_beside_search(const Layout& layout) {
  return row_of(layout.schedule).searched && layout.pp > 1 && layout.zero < 3;
}

// The named schedules that get a search of their own behind the layout's: those that may come to a shorter step than it
// found. Only such a search tries the pairs of DualPipeV.
std::vector<PipelineSchedule> named_to_search(const Layout& layout, const PlanSearcher& searcher) {
  std::vector<PipelineSchedule> named = searcher.promising_named();
  const bool may_pair = row_of(layout.schedule).in_waves && (layout.tp > 1 || layout.ep > 1) && !layout.has_slices() &&
                        layout.reduces_once_a_step();
  const bool is_there = std::find(named.begin(), named.end(), PipelineSchedule::dualpipev) != named.end();
  if (may_pair && !is_there) named.push_back(PipelineSchedule::dualpipev);
  return named;
}

}  // namespace

Overlap weft_overlap(const PlanRequest& request, const StepGraph& graph) {
  WEFT_CHECK(request.search.step_seconds != nullptr);
  const std::vector<Overlap> others = of_other_policies(request, graph);
  if (!has_named_beside_search(request.layout)) return PlanSearcher(request, graph).best_of(others).overlap;
  // How many searches there are is known when the first has ended: until then it is half of the work.
  const PlanRequest own = with_share_of_progress(request, 0, 2);
  PlanSearcher searcher(own, graph);
  PlanSearcher::Found best = searcher.best_of(others);
  const std::vector<PipelineSchedule> named = named_to_search(request.layout, searcher);
  for (std::size_t i = 0; i < named.size(); ++i) {
    PlanRequest as_named = with_share_of_progress(request, named.size() + i, 2 * named.size());
    as_named.layout.schedule = named[i];
    Overlap found = PlanSearcher(as_named, graph).best_of(of_other_policies(as_named, graph)).overlap;
    found.order.pipeline.named = named[i];
    const PlanSearcher::Outcome outcome = searcher.in_full(found);
    if (PlanSearcher::is_better_result(outcome, best.outcome)) best = {std::move(found), outcome};
  }
  return best.overlap;
}

}  // namespace weft
