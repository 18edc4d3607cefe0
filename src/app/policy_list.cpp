#include "app/policy_list.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "plan/policy/policy.hpp"

namespace weft {

std::vector<std::string> read_policies(const Flags& flags) {
  const auto text = flags.text("policy");
  if (!text) return policy_names();
  std::vector<std::string> policies;
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
