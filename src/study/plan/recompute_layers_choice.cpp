#include "study/plan/recompute_layers_choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cost/cost_model.hpp"
#include "planner/policy/policy.hpp"
#include "sim/simulate_plan.hpp"
#include "study/plan/plan_study.hpp"

namespace weft {
namespace {

// Plans the layout with so many recomputed layers in each stage.
class RecomputeTrials {
 public:
  RecomputeTrials(const Inputs& inputs, const Profile& profile, std::string policy)
      : inputs_(inputs),
        profile_(profile),
        policy_(std::move(policy)),
        per_chunk_(layers_per_chunk(inputs.layout, inputs.model)) {
    const PipelineShape shape = shape_of(inputs.layout);
    for (std::size_t chunk = 0; chunk < per_chunk_.size(); ++chunk) {
      stage_of_chunk_.push_back(shape.stage_of(static_cast<std::int64_t>(chunk)));
    }
  }

  std::vector<std::int64_t> layers_of_stages() const {
    std::vector<std::int64_t> layers(static_cast<std::size_t>(inputs_.layout.pp));
    for (std::size_t chunk = 0; chunk < per_chunk_.size(); ++chunk) layers[stage_of_chunk_[chunk]] += per_chunk_[chunk];
    return layers;
  }

  struct Trial {
    RecomputeLayersOption option;
    std::vector<bool> fits;  // by stage
  };
  Trial with(const std::vector<std::int64_t>& of_stages) const {
    Inputs inputs = inputs_;
    inputs.layout.recompute_layers = chunks_of(of_stages);
    if (inputs.layout.recompute_layers == std::vector<std::int64_t>{0}) {  // a single number is at least 1
      inputs.layout.recompute = Recompute::none;
      inputs.layout.recompute_layers.clear();
    }
    const Cluster cluster(inputs.cluster);
    const WholePlan whole =
        make_whole_plan(request_of(inputs, profile_), build_step_graph(inputs.model, cluster, inputs.layout), policy_);
    const Plan& plan = whole.plan();
    Trial trial{{chunks_of(of_stages), 0, {}, true}, std::vector<bool>(of_stages.size(), true)};
    for (std::size_t c = 0; c < plan.classes.size(); ++c) {
      const RankClass& of = plan.graph.classes[c];
      trial.option.memory = std::max(trial.option.memory, plan.classes[c].memory);
      if (plan.classes[c].memory <= of.device.memory) continue;
      trial.fits[of.stage] = trial.option.fits = false;
    }
    trial.option.step_s = simulated_period_ns(whole, CostModel(plan.graph, cluster, profile_)) * 1e-9;
    return trial;
  }

 private:
  std::vector<std::int64_t> chunks_of(std::vector<std::int64_t> of_stages) const {
    std::vector<std::int64_t> chunks;
    for (std::size_t chunk = 0; chunk < per_chunk_.size(); ++chunk) {
      std::int64_t& left = of_stages[stage_of_chunk_[chunk]];
      chunks.push_back(std::min(left, per_chunk_[chunk]));
      left -= chunks.back();
    }
    return chunks;
  }

  const Inputs& inputs_;
  const Profile& profile_;
  std::string policy_;
  std::vector<std::int64_t> per_chunk_, stage_of_chunk_;
};

std::string option_in_words(const RecomputeLayersOption& option) {
  return fmt::format("{} a step and {}{}", format_time(nanos_from_seconds(option.step_s)), format_bytes(option.memory),
                     option.fits ? "" : ", which does not fit");
}

}  // namespace

RecomputeLayersChoice choose_recompute_layers(const Inputs& inputs, const Profile& profile, const std::string& policy) {
  if (inputs.layout.directions() > 1) {
    fail("--recompute-layers auto: is not for --schedule {}, whose stages hold two parts of the model",
         row_of(inputs.layout.schedule).name);
  }
  const RecomputeTrials trials(inputs, profile, policy);
  const std::vector<std::int64_t> layers = trials.layers_of_stages();
  const RecomputeTrials::Trial none = trials.with(std::vector<std::int64_t>(layers.size(), 0)),
                               all = trials.with(layers);
  // A stage's memory depends on its own layers alone, so all stages are bisected at once.
  std::vector<std::int64_t> enough = layers, too_few(layers.size(), 0);
  for (std::size_t stage = 0; stage < layers.size(); ++stage) {
    if (none.fits[stage]) enough[stage] = 0;
  }
  const auto is_open = [&](std::size_t stage) { return enough[stage] - too_few[stage] > 1; };
  for (;;) {
    std::vector<std::int64_t> middle = enough;
    for (std::size_t stage = 0; stage < layers.size(); ++stage) {
      if (is_open(stage)) middle[stage] = (enough[stage] + too_few[stage]) / 2;
    }
    if (middle == enough) break;
    const RecomputeTrials::Trial trial = trials.with(middle);
    for (std::size_t stage = 0; stage < layers.size(); ++stage) {
      if (is_open(stage)) (trial.fits[stage] ? enough : too_few)[stage] = middle[stage];
    }
  }
  // Where places in memory fit together worse with a layer more, what was enough may not be beside other stages.
  RecomputeTrials::Trial fewest = trials.with(enough);
  while (all.option.fits && !fewest.option.fits && enough != layers) {
    for (std::size_t stage = 0; stage < layers.size(); ++stage) {
      if (!fewest.fits[stage]) enough[stage] = std::min(enough[stage] + 1, layers[stage]);
    }
    fewest = trials.with(enough);
  }
  return {policy, fewest.option, none.option, all.option};
}

Layout with_fewest(const RecomputeLayersChoice& choice, Layout layout) {
  layout.recompute_layers = choice.fewest.layers;
  if (choice.fewest.layers == choice.all.layers) layout.recompute_layers.clear();
  if (choice.fewest.layers == choice.none.layers) {
    layout.recompute = Recompute::none;
    layout.recompute_layers.clear();
  }
  return layout;
}

std::string recompute_layers_line(const RecomputeLayersChoice& choice) {
  const bool none = choice.fewest.layers == choice.none.layers, all = choice.fewest.layers == choice.all.layers;
  std::string text;
  if (none) {
    text = fmt::format("none, because all activations fit: {}", option_in_words(choice.none));
  } else {
    text = fmt::format("{} layers{}: {}", fmt::join(choice.fewest.layers, ","),
                       choice.fewest.fits ? ", the fewest that fit" : "", option_in_words(choice.fewest));
  }
  if (!all) text += "; all layers " + option_in_words(choice.all);
  if (!none) text += "; none " + option_in_words(choice.none);
  return text + fmt::format(" (predicted with {})", choice.policy);
}

}  // namespace weft
