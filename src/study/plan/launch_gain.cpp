#include "study/plan/launch_gain.hpp"

#include <algorithm>

namespace weft {

std::vector<std::string> policies_beside(const std::string& launched) {
  return {"serial", launched, "weft"};
}

std::optional<LaunchGain> gain_over_launch(const PlanStudy& study, const std::string& launched) {
  const auto found = std::find_if(study.policies.begin(), study.policies.end(),
                                  [&](const PolicyStudy& p) { return p.policy == launched; });
  if (found == study.policies.end()) return std::nullopt;
  return LaunchGain{*found, study.policies[study.best]};
}

}  // namespace weft
