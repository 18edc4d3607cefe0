#include "study/plan/reduce_every_choice.hpp"

#include <fmt/format.h>

#include <tuple>

#include "base/text.hpp"
#include "study/plan/plan_study.hpp"

namespace weft {
namespace {

ReduceEveryOption predicted(Inputs inputs, const Profile& profile, const std::string& policy,
                            std::int64_t reduce_every) {
  inputs.layout.reduce_every = reduce_every;
  validate(inputs.layout, inputs.model, Cluster(inputs.cluster).device_count());
  const PlanStudy study = study_plan(inputs, {policy}, profile);
  const PolicyStudy& only = study.policies.front();
  return {reduce_every, only.step_s, only.memory_peak, only.fits};
}

std::string option_in_words(const ReduceEveryOption& option) {
  return fmt::format("{} a step and {}{}", format_time(nanos_from_seconds(option.step_s)), format_bytes(option.memory),
                     option.fits ? "" : ", which does not fit");
}

}  // namespace

ReduceEveryChoice choose_reduce_every(const Inputs& inputs, const Profile& profile, const std::string& policy) {
  ReduceEveryChoice choice{policy, {}, 0};
  for (const std::int64_t every : {Layout::kWholeStep, std::int64_t{1}}) {
    choice.options.push_back(predicted(inputs, profile, policy, every));
  }
  const auto rank = [](const ReduceEveryOption& o) {
    return std::tuple(!o.fits, o.fits ? o.step_s : static_cast<double>(o.memory.value));
  };
  choice.chosen = rank(choice.options[1]) < rank(choice.options[0]) ? 1 : 0;
  return choice;
}

std::string reduce_every_line(const ReduceEveryChoice& choice) {
  const ReduceEveryOption &once = choice.options[0], &each = choice.options[1];
  return fmt::format("{}: once a step {}; in every micro-batch {} (predicted with {})",
                     choice.chosen == 0 ? "step" : "1", option_in_words(once), option_in_words(each), choice.policy);
}

}  // namespace weft
