#include "study/plan/chunk_placement_choice.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft {
namespace {

constexpr double kSearchSeconds = 2;  // for each placement

ChunkPlacementOption predicted(Inputs inputs, const Profile& profile, const std::string& policy,
                               PipelineSchedule schedule) {
  inputs.layout.schedule = schedule;
  inputs.budget_s = std::min(inputs.budget_s, kSearchSeconds);
  return {outcome_of(inputs, profile, policy), schedule};
}

}  // namespace

ChunkPlacementChoice choose_chunk_placement(const Inputs& inputs, const Profile& profile, const std::string& policy) {
  ChunkPlacementChoice choice{policy, {}, 0};
  for (const auto schedule : {PipelineSchedule::searched_waves, PipelineSchedule::searched_loops}) {
    choice.options.push_back(predicted(inputs, profile, policy, schedule));
  }
  choice.chosen = is_better(choice.options[1], choice.options[0]) ? 1 : 0;
  return choice;
}

std::string chunk_placement_line(const ChunkPlacementChoice& choice) {
  const ChunkPlacementOption &best = choice.best(), &other = choice.options[1 - choice.chosen];
  return fmt::format("{}: {}; {} {} (predicted with {})", name_of(best.schedule), in_words(best),
                     name_of(other.schedule), in_words(other), choice.policy);
}

}  // namespace weft
