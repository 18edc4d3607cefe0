#include "planner/policy/weft.hpp"

#include <utility>

#include "base/error.hpp"
#include "planner/policy/policy.hpp"
#include "planner/search/plan_searcher.hpp"

namespace weft {
namespace {

// Returns the named schedules that a pipeline with such chunks may have, where the layout leaves the order to the
// search. With ZeRO 3 the schedule says when the head's parameters are gathered, so that graphs differ.
std::vector<PipelineSchedule> named_beside_search(const Layout& layout) {
  using enum PipelineSchedule;
  if (!row_of(layout.schedule).searched || layout.pp == 1 || layout.zero == 3) return {};
  return layout.vpp > 1 ? std::vector{zbv, v_half, v_min, dualpipev} : std::vector{one_f_one_b, zb_h1, zb_h2};
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

}  // namespace

Overlap weft_overlap(const PlanRequest& request, const StepGraph& graph) {
  WEFT_CHECK(request.search.step_seconds != nullptr);
  std::vector<Overlap> others;
  for (const std::string& policy : policy_names()) {
    if (!searches(policy)) others.push_back(decide_overlap(request, graph, policy));
  }
  // What each named schedule comes to with a search of its own: so the result is no worse than any of them.
  const std::vector<PipelineSchedule> named = named_beside_search(request.layout);
  for (std::size_t i = 0; i < named.size(); ++i) {
    PlanRequest as_named = with_share_of_progress(request, i, named.size() + 1);
    as_named.layout.schedule = named[i];
    Overlap found = weft_overlap(as_named, graph);
    found.order.pipeline.named = named[i];
    others.push_back(std::move(found));
  }
  const PlanRequest own = with_share_of_progress(request, named.size(), named.size() + 1);
  return PlanSearcher(own, graph).best_of(others);
}

}  // namespace weft
