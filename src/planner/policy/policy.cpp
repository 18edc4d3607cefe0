#include "planner/policy/policy.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "planner/passes.hpp"
#include "planner/policy/centauri.hpp"
#include "planner/policy/ddp.hpp"
#include "planner/policy/fsdp.hpp"
#include "planner/policy/lancet.hpp"
#include "planner/policy/megatron.hpp"
#include "planner/policy/priority.hpp"
#include "planner/policy/serial.hpp"
#include "planner/policy/tutel.hpp"
#include "planner/policy/weft.hpp"

namespace weft {
namespace {

// All that the rest of the program knows of a policy beside its plans.
struct Traits {
  bool searches = false;     // see policy.hpp
  bool cuts_layers = false;  // see policy.hpp
  bool of_experts = false;   // see policy.hpp
};
struct Policy {
  std::string_view name;
  Overlap (*decide)(const PlanRequest&, const StepGraph&);
  Traits traits = {};
};
constexpr Policy kPolicies[] = {
    {"serial", serial_overlap},
    {"ddp", ddp_overlap},
    {"megatron-dist", megatron_dist_overlap},
    {"megatron-grad", megatron_grad_overlap},
    {"megatron-param", megatron_param_overlap},
    {"fsdp", fsdp_overlap},
    {"priority", priority_overlap},
    {"tutel", tutel_overlap, {.cuts_layers = true, .of_experts = true}},
    {"lancet", lancet_overlap, {.cuts_layers = true, .of_experts = true}},
    {"centauri", centauri_overlap, {.cuts_layers = true}},
    {"weft", weft_overlap, {.searches = true, .cuts_layers = true}},
};
// Other names that are understood and not listed.
struct Alias {
  std::string_view name, meaning;
};
constexpr Alias kAliases[] = {{"megatron", "megatron-param"}};

const Policy& find_policy(std::string_view name) {
  for (const Policy& policy : kPolicies) {
    if (policy.name == name) return policy;
  }
  for (const Alias& alias : kAliases) {
    if (alias.name == name) return find_policy(alias.meaning);
  }
  std::vector<std::string> names = policy_names();
  for (const Alias& alias : kAliases) names.emplace_back(alias.name);
  fail("--policy '{}': there is no such policy{}", name, suggestion(name, names));
}

}  // namespace

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Policy& policy : kPolicies) names.emplace_back(policy.name);
  return names;
}

bool searches(std::string_view policy) {
  return find_policy(policy).traits.searches;
}

bool cuts_layers(std::string_view policy) {
  return find_policy(policy).traits.cuts_layers;
}

bool of_experts(std::string_view policy) {
  return find_policy(policy).traits.of_experts;
}

void require_policy(std::string_view name) {
  find_policy(name);
}

Overlap decide_overlap(const PlanRequest& request, const StepGraph& graph, std::string_view policy) {
  Overlap overlap = find_policy(policy).decide(request, graph);
  std::sort(overlap.partition.buckets.begin(), overlap.partition.buckets.end(),
            [](const MergeSet& a, const MergeSet& b) { return a.members.front() < b.members.front(); });
  return overlap;
}

WholePlan make_whole_plan(const PlanRequest& request, const SharedGraph& graph, std::string_view policy,
                          const Overlap& overlap) {
  return overlapped_plan(request, graph, std::string(find_policy(policy).name), overlap);
}

Plan make_plan(const PlanRequest& request, const StepGraph& graph, std::string_view policy) {
  return make_whole_plan(request, SharedGraph(graph), policy).plan();
}

WholePlan make_whole_plan(const PlanRequest& request, const SharedGraph& graph, std::string_view policy) {
  return make_whole_plan(request, graph, policy, decide_overlap(request, graph, policy));
}

}  // namespace weft
