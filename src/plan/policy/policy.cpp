#include "plan/policy/policy.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "plan/policy/fsdp.hpp"
#include "plan/policy/serial.hpp"

namespace weft {

std::vector<std::string> policy_names() {
  return {"serial", "fsdp"};
}

void require_policy(std::string_view name) {
  const std::vector<std::string> names = policy_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    fail("--policy '{}': there is no such policy{}", name, suggestion(name, names));
  }
}

Plan make_plan(const PlanRequest& request, const StepGraph& graph, std::string_view policy) {
  require_policy(policy);
  if (policy == "fsdp") return fsdp_plan(request, graph);
  return serial_plan(request, graph);
}

}  // namespace weft
