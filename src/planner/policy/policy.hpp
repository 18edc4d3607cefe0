// A policy: a named way from a step graph to a plan.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/overlap.hpp"
#include "planner/plan_request.hpp"

namespace weft {

std::vector<std::string> policy_names();    // those with a name of their own; `megatron` is megatron-param
bool searches(std::string_view policy);     // it needs PlanRequest::search
bool cuts_layers(std::string_view policy);  // it cuts layers where they communicate
bool of_experts(std::string_view policy);   // without all-to-alls of experts it does what `ddp` does
// Throws Error with the nearest name for an unknown policy, as make_plan does.
void require_policy(std::string_view name);
Plan make_plan(const PlanRequest& request, const StepGraph& graph, std::string_view policy);
// The same for callers that go on to verify, simulate or run it.
WholePlan make_whole_plan(const PlanRequest& request, const SharedGraph& graph, std::string_view policy);

// The same in two steps, for callers that compare policies: what a policy decides
// (policy/overlap.hpp), and the plan that follows. Policies that decide the same give the same plan but for its name.
Overlap decide_overlap(const PlanRequest& request, const StepGraph& graph, std::string_view policy);
WholePlan make_whole_plan(const PlanRequest& request, const SharedGraph& graph, std::string_view policy,
                          const Overlap& overlap);

}  // namespace weft
