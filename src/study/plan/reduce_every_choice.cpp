#include "study/plan/reduce_every_choice.hpp"

#include <fmt/format.h>

namespace weft {
namespace {

ReduceEveryOption predicted(Inputs inputs, const Profile& profile, const std::string& policy,
                            std::int64_t reduce_every) {
  inputs.layout.reduce_every = reduce_every;
  validate(inputs.layout, inputs.model, Cluster(inputs.cluster).device_count());
  return {outcome_of(inputs, profile, policy), reduce_every};
}

}  // namespace

ReduceEveryChoice choose_reduce_every(const Inputs& inputs, const Profile& profile, const std::string& policy) {
  ReduceEveryChoice choice{policy, {}, 0};
  for (const std::int64_t every : {Layout::kWholeStep, std::int64_t{1}}) {
    choice.options.push_back(predicted(inputs, profile, policy, every));
  }
  choice.chosen = is_better(choice.options[1], choice.options[0]) ? 1 : 0;
  return choice;
}

std::string reduce_every_line(const ReduceEveryChoice& choice) {
  const ReduceEveryOption &once = choice.options[0], &each = choice.options[1];
  return fmt::format("{}: once a step {}; in every micro-batch {} (predicted with {})",
                     choice.chosen == 0 ? "step" : "1", in_words(once), in_words(each), choice.policy);
}

}  // namespace weft
