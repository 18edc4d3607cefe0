// What the best policy would gain over the policy that a Megatron launch uses.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "study/plan/plan_study.hpp"

namespace weft {

// Returns the policies to compare: the launch's own between `serial` and `weft`.
std::vector<std::string> policies_beside(const std::string& launched);

struct LaunchGain {
  const PolicyStudy& launched;
  const PolicyStudy& best;
  double speedup() const { return launched.step_s / best.step_s; }
};
// Nothing where the launch's own policy has no plan. The study must outlive the gain.
std::optional<LaunchGain> gain_over_launch(const PlanStudy& study, const std::string& launched);

}  // namespace weft
