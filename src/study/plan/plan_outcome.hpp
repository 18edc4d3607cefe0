// What a plan comes to that is made only to choose between layouts.
#pragma once

#include <string>

#include "cost/profile.hpp"
#include "study/inputs.hpp"

namespace weft {

struct PlanOutcome {
  double step_s = 0;
  Bytes memory;  // of the fullest stage
  bool fits = true;
};

PlanOutcome outcome_of(const Inputs& inputs, const Profile& profile, const std::string& policy);

// Whether the first is to be chosen: what fits is better than what does not, then the faster; where neither fits, the
// one that needs less memory.
bool is_better(const PlanOutcome& a, const PlanOutcome& b);

// "3.42 s a step and 56.2 GiB", with ", which does not fit"
std::string in_words(const PlanOutcome& outcome);

}  // namespace weft
