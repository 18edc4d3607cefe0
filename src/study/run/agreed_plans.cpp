#include "study/run/agreed_plans.hpp"

#include <fmt/format.h>

#include <sstream>

#include "io/plan_json.hpp"

namespace weft {

std::string plan_digest(const Plan& plan) {
  std::ostringstream text;
  write_plan_json(text, plan);
  return digest_of(text.view());
}

AgreedSettings agreed_plans(const std::vector<const Plan*>& plans) {
  AgreedSettings settings;
  for (const Plan* plan : plans) {
    const std::string digest = plan_digest(*plan);
    settings.push_back({fmt::format("the plan of {}", plan->policy), digest, fmt::format("with digest {}", digest)});
  }
  return settings;
}

}  // namespace weft
