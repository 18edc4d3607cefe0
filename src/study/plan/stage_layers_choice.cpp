#include "study/plan/stage_layers_choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"
#include "planner/partition/stage_balance.hpp"
#include "study/plan/recompute_layers_choice.hpp"

namespace weft {
namespace {

constexpr int kMostLayersMoreInFirst = 2;

StageLayersOption predicted(Inputs inputs, const Profile& profile, const std::string& policy,
                            const std::vector<std::int64_t>& layers, bool fewest_recomputed) {
  inputs.layout.stage_layers = layers;
  if (fewest_recomputed) return {choose_recompute_layers(inputs, profile, policy).best(), layers};
  return {outcome_of(inputs, profile, policy), layers};
}

StageProblem problem_of(const Inputs& inputs, const Profile& profile) {
  const Cluster cluster(inputs.cluster);
  const StepGraph graph = build_step_graph(inputs.model, cluster, inputs.layout);
  return stage_problem(graph, CostModel(graph, cluster, profile), inputs.layout);
}

}  // namespace

StageLayersChoice choose_stage_layers(const Inputs& inputs, const Profile& profile, const std::string& policy,
                                      bool fewest_recomputed) {
  const Layout& layout = inputs.layout;
  if (layout.pp == 1) fail("--stage-layers auto: is for pipelines; give --pp");
  if (layout.directions() > 1) {
    fail("--stage-layers auto: is not for --schedule {}, whose stages hold two parts of the model",
         row_of(layout.schedule).name);
  }
  if (layout.recompute_layers.size() > 1) {
    fail("--stage-layers auto: is not for numbers of --recompute-layers by model chunk; give one number, or auto");
  }
  Layout even = layout;
  even.stage_layers.clear();
  std::vector<std::vector<std::int64_t>> tried{layers_per_chunk(even, inputs.model)};
  const auto add = [&](std::vector<std::int64_t> layers) {
    if (std::find(tried.begin(), tried.end(), layers) == tried.end()) tried.push_back(std::move(layers));
  };
  if (!layout.stage_layers.empty()) add(layout.stage_layers);
  StageProblem problem = problem_of(inputs, profile);
  for (int more = 0; more <= kMostLayersMoreInFirst; ++more) {
    add(balanced_layers(problem));
    problem.fixed.front() += problem.layer.front();
  }
  StageLayersChoice choice{policy, {}, 0};
  for (const std::vector<std::int64_t>& layers : tried) {
    choice.options.push_back(predicted(inputs, profile, policy, layers, fewest_recomputed));
  }
  const auto best = std::ranges::min_element(choice.options, is_better);
  choice.chosen = static_cast<std::size_t>(best - choice.options.begin());
  return choice;
}

std::string stage_layers_line(const StageLayersChoice& choice) {
  const StageLayersOption &even = choice.options.front(), &best = choice.options[choice.chosen];
  std::string text = fmt::format("{}: {}", fmt::join(best.layers, ","), in_words(best));
  text += choice.chosen == 0 ? std::string(", as even as possible") : "; as even as possible " + in_words(even);
  return text + fmt::format(" (predicted with {})", choice.policy);
}

}  // namespace weft
