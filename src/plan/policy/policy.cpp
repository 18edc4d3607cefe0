#include "plan/policy/policy.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "plan/policy/ddp.hpp"
#include "plan/policy/fsdp.hpp"
#include "plan/policy/megatron.hpp"
#include "plan/policy/serial.hpp"

namespace weft {
namespace {

struct Policy {
  std::string_view name;
  Plan (*make)(const PlanRequest&, const StepGraph&);
};
constexpr Policy kPolicies[] = {
    {"serial", serial_plan},
    {"ddp", ddp_plan},
    {"megatron-dist", megatron_dist_plan},
    {"megatron-grad", megatron_grad_plan},
    {"megatron-param", megatron_param_plan},
    {"fsdp", fsdp_plan},
};
// Other names that are understood and not listed.
constexpr Policy kAliases[] = {{"megatron", megatron_param_plan}};

const Policy& find_policy(std::string_view name) {
  for (const Policy& policy : kPolicies) {
    if (policy.name == name) return policy;
  }
  for (const Policy& policy : kAliases) {
    if (policy.name == name) return policy;
  }
  std::vector<std::string> names = policy_names();
  for (const Policy& policy : kAliases) names.emplace_back(policy.name);
  fail("--policy '{}': there is no such policy{}", name, suggestion(name, names));
}

}  // namespace

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Policy& policy : kPolicies) names.emplace_back(policy.name);
  return names;
}

void require_policy(std::string_view name) {
  find_policy(name);
}

Plan make_plan(const PlanRequest& request, const StepGraph& graph, std::string_view policy) {
  return find_policy(policy).make(request, graph);
}

}  // namespace weft
