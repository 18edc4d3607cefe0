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
#include "planner/policy/nanotron.hpp"
#include "planner/policy/priority.hpp"
#include "planner/policy/serial.hpp"
#include "planner/policy/tutel.hpp"
#include "planner/policy/weft.hpp"

namespace weft {
namespace {

struct Policy {
  std::string_view name;
  Overlap (*decide)(const PlanRequest&, const StepGraph&);
  PolicyFacts facts = {};
};
constexpr PolicyFacts kMegatron{.reads_megatron_flags = true, .buckets_by_parameters = true};
constexpr Policy kPolicies[] = {
    {"serial", serial_overlap},
    {"ddp", ddp_overlap, {.buckets_by_bytes = true}},
    {"megatron-dist", megatron_dist_overlap, kMegatron},
    {"megatron-grad", megatron_grad_overlap, kMegatron},
    {"megatron-param", megatron_param_overlap, kMegatron},
    {"fsdp", fsdp_overlap},
    {"nanotron", nanotron_overlap, {.buckets_by_bytes = true, .of_framework = true}},
    {"priority", priority_overlap},
    {"tutel", tutel_overlap, {.cuts_layers = true, .of_experts = true}},
    {"lancet", lancet_overlap, {.cuts_layers = true, .of_experts = true}},
    {"centauri", centauri_overlap, {.cuts_layers = true}},
    {"weft", weft_overlap, {.searches = true, .cuts_layers = true, .reads_megatron_flags = true}},
};
// These other names are understood and not listed.
struct Alias {
  std::string_view name, meaning;
};
constexpr Alias kAliases[] = {{"megatron", "megatron-param"}};

const Policy* find_policy(std::string_view name) {
  for (const Alias& alias : kAliases) {
    if (alias.name == name) name = alias.meaning;
  }
  const auto found =
      std::find_if(std::begin(kPolicies), std::end(kPolicies), [&](const Policy& p) { return p.name == name; });
  return found == std::end(kPolicies) ? nullptr : found;
}

const Policy& policy_named(std::string_view name) {
  if (const Policy* found = find_policy(name)) return *found;
  std::vector<std::string> names = policy_names();
  for (const Alias& alias : kAliases) names.emplace_back(alias.name);
  fail("--policy '{}': there is no such policy{}", name, suggestion(name, names));
}

}  // namespace

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Policy& policy : kPolicies) {
    if (!policy.facts.of_framework) names.emplace_back(policy.name);
  }
  return names;
}

PolicyFacts facts_of(std::string_view policy) {
  const Policy* found = find_policy(policy);
  return found == nullptr ? PolicyFacts{} : found->facts;
}

void require_policy(std::string_view name) {
  policy_named(name);
}

Overlap decide_overlap(const PlanRequest& request, const StepGraph& graph, std::string_view policy) {
  Overlap overlap = policy_named(policy).decide(request, graph);
  std::sort(overlap.partition.buckets.begin(), overlap.partition.buckets.end(),
            [](const MergeSet& a, const MergeSet& b) { return a.members.front() < b.members.front(); });
  return overlap;
}

WholePlan make_whole_plan(const PlanRequest& request, const SharedGraph& graph, std::string_view policy,
                          const Overlap& overlap) {
  return overlapped_plan(request, graph, std::string(policy_named(policy).name), overlap);
}

Plan make_plan(const PlanRequest& request, const StepGraph& graph, std::string_view policy) {
  return make_whole_plan(request, SharedGraph(graph), policy).plan();
}

WholePlan make_whole_plan(const PlanRequest& request, const SharedGraph& graph, std::string_view policy) {
  return make_whole_plan(request, graph, policy, decide_overlap(request, graph, policy));
}

}  // namespace weft
