#include "app/plan/policy_list.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cost/framework.hpp"
#include "planner/policy/policy.hpp"

namespace weft {

std::vector<std::string> read_policies(const Flags& flags) {
  const auto text = flags.text("policy");
  std::vector<std::string> policies;
  if (!text) {
    policies = policy_names();
    const bool exchanges = flags.declares("ep") && flags.integer("ep", 1, INT32_MAX).value_or(1) > 1;
    if (!exchanges) std::erase_if(policies, [](const auto& name) { return facts_of(name).of_experts; });
    const auto framework = flags.declares("framework") ? flags.text("framework") : std::nullopt;
    if (framework) {
      const std::string own(framework_named(*framework).policy);
      if (std::find(policies.begin(), policies.end(), own) == policies.end()) policies.insert(policies.begin(), own);
    }
    return policies;
  }
  for (const std::string& name : split(*text, ',')) {
    require_policy(name);
    if (std::find(policies.begin(), policies.end(), name) != policies.end()) {
      fail("--policy '{}': is named twice", name);
    }
    policies.push_back(name);
  }
  return policies;
}

}  // namespace weft
