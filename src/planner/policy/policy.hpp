// A policy is a named way from a step graph to a plan.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/overlap.hpp"
#include "planner/plan_request.hpp"

namespace weft {

// The rest of the program knows these facts of a policy, beside its plans.
struct PolicyFacts {
  bool searches = false;               // it needs PlanRequest::search
  bool cuts_layers = false;            // it cuts layers where they communicate, so a run measures parts
  bool of_experts = false;             // without all-to-alls of experts it does what `ddp` does
  bool reads_megatron_flags = false;   // --tp-comm-overlap and the others that Megatron has
  bool buckets_by_bytes = false;       // PolicyOptions::bucket_mib sizes its buckets
  bool buckets_by_parameters = false;  // PolicyOptions::bucket_parameters does
  bool of_framework = false;           // planned where it, or its framework, is asked for by name
};
std::vector<std::string> policy_names();  // those that every study compares; `megatron` is megatron-param
// No facts are true of a name that a plan file has and no policy.
PolicyFacts facts_of(std::string_view policy);
inline bool searches(std::string_view policy) {
  return facts_of(policy).searches;
}
// Throws Error with the nearest name for an unknown policy, as make_plan does.
void require_policy(std::string_view name);
Plan make_plan(const PlanRequest& request, const StepGraph& graph, std::string_view policy);
// The same for callers that go on to verify, simulate or run it.
WholePlan make_whole_plan(const PlanRequest& request, const SharedGraph& graph, std::string_view policy);

// The same in two steps, for callers that compare policies: what a policy decides
// (planner/overlap.hpp), and the plan that follows. Policies that decide the same give the same plan but for its name.
Overlap decide_overlap(const PlanRequest& request, const StepGraph& graph, std::string_view policy);
WholePlan make_whole_plan(const PlanRequest& request, const SharedGraph& graph, std::string_view policy,
                          const Overlap& overlap);

}  // namespace weft
