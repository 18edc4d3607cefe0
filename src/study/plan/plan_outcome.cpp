#include "study/plan/plan_outcome.hpp"

#include <fmt/format.h>

#include <tuple>

#include "base/text.hpp"
#include "study/plan/plan_study.hpp"

namespace weft {

PlanOutcome outcome_of(const Inputs& inputs, const Profile& profile, const std::string& policy) {
  const PlanStudy study = study_plan(inputs, {policy}, profile);
  const PolicyStudy& only = study.policies.front();
  return {only.step_s, only.memory_peak, only.fits};
}

bool is_better(const PlanOutcome& a, const PlanOutcome& b) {
  const auto rank = [](const PlanOutcome& o) {
    return std::tuple(!o.fits, o.fits ? o.step_s : static_cast<double>(o.memory.value), o.memory);
  };
  return rank(a) < rank(b);
}

std::string in_words(const PlanOutcome& outcome) {
  return fmt::format("{} a step and {}{}", format_time(nanos_from_seconds(outcome.step_s)),
                     format_bytes(outcome.memory), outcome.fits ? "" : ", which does not fit");
}

}  // namespace weft
