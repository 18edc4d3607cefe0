#include "study/plan/recompute_layers_choice.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/text.hpp"
#include "cost/cost_model.hpp"
#include "planner/memory_needs.hpp"
#include "planner/policy/policy.hpp"
#include "sim/simulate_plan.hpp"
#include "study/plan/plan_study.hpp"

namespace weft {
namespace {

constexpr double kSearchSeconds = 2;              // of a policy that searches, for each option
constexpr double kSharesOfMemory[] = {0.9, 0.8};  // that fewest layers fit into, so that a search has the rest

// Plans the layout with so many recomputed layers in each stage.
class RecomputeTrials {
 public:
  RecomputeTrials(const Inputs& inputs, const Profile& profile, const std::string& policy)
      : inputs_(inputs),
        profile_(profile),
        policy_(policy),
        per_chunk_(layers_per_chunk(inputs.layout, inputs.model)),
        layers_(static_cast<std::size_t>(inputs.layout.pp)) {
    const PipelineShape shape = shape_of(inputs.layout);
    for (std::size_t chunk = 0; chunk < per_chunk_.size(); ++chunk) {
      stage_of_chunk_.push_back(shape.stage_of(static_cast<std::int64_t>(chunk)));
      layers_[stage_of_chunk_.back()] += per_chunk_[chunk];
    }
    all_ = with(layers_);
    none_ = with(std::vector<std::int64_t>(layers_.size(), 0));
  }

  const RecomputeLayersOption& all() const { return all_.option; }
  const RecomputeLayersOption& none() const { return none_.option; }

  // A stage's memory depends on its own layers alone, so all stages are bisected at once.
  RecomputeLayersOption fewest(double share_of_memory) const {
    std::vector<std::int64_t> enough = layers_, too_few(layers_.size(), 0);
    for (std::size_t stage = 0; stage < layers_.size(); ++stage) {
      if (none_.fits(stage, share_of_memory)) enough[stage] = 0;
    }
    const auto is_open = [&](std::size_t stage) { return enough[stage] - too_few[stage] > 1; };
    for (;;) {
      std::vector<std::int64_t> middle = enough;
      for (std::size_t stage = 0; stage < layers_.size(); ++stage) {
        if (is_open(stage)) middle[stage] = (enough[stage] + too_few[stage]) / 2;
      }
      if (middle == enough) break;
      const Trial trial = with(middle);
      for (std::size_t stage = 0; stage < layers_.size(); ++stage) {
        if (is_open(stage)) (trial.fits(stage, share_of_memory) ? enough : too_few)[stage] = middle[stage];
      }
    }
    return mended(enough, share_of_memory);
  }

 private:
  struct Trial {
    RecomputeLayersOption option;
    std::vector<double> used;  // by stage: of its memory
    bool fits(std::size_t stage, double share_of_memory) const { return used[stage] <= share_of_memory; }
  };

  // What was enough of one stage may not be beside other stages: places in memory may fit together worse.
  RecomputeLayersOption mended(std::vector<std::int64_t> enough, double share_of_memory) const {
    Trial trial = with(enough);
    for (bool more = true; more; trial = more ? with(enough) : trial) {
      more = false;
      for (std::size_t stage = 0; stage < layers_.size(); ++stage) {
        if (trial.fits(stage, share_of_memory) || enough[stage] == layers_[stage]) continue;
        ++enough[stage];
        more = true;
      }
    }
    return trial.option;
  }

  Trial with(const std::vector<std::int64_t>& of_stages) const {
    Inputs inputs = inputs_;
    inputs.layout.recompute_layers = chunks_of(of_stages);
    if (std::ranges::max(of_stages) == 0) {
      inputs.layout.recompute = Recompute::none;
      inputs.layout.recompute_layers.clear();
    }
    const Cluster cluster(inputs.cluster);
    const WholePlan whole =
        make_whole_plan(request_of(inputs, profile_), build_step_graph(inputs.model, cluster, inputs.layout), policy_);
    const Plan& plan = whole.plan();
    Trial trial{{{}, chunks_of(of_stages)}, std::vector<double>(of_stages.size(), 0)};
    const std::vector<MemoryNeed> needs = memory_needs(plan, profile_);
    for (std::size_t c = 0; c < needs.size(); ++c) {
      double& used = trial.used[plan.graph.classes[c].stage];
      used = std::max(used, needs[c].share());
    }
    const MemoryVerdict memory = judge_memory(needs);
    trial.option.memory = memory.needed;
    trial.option.fits = memory.fits;
    trial.option.step_s = simulated_period_ns(whole, CostModel(plan.graph, cluster, profile_)) * 1e-9;
    return trial;
  }

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
  std::vector<std::int64_t> per_chunk_, layers_, stage_of_chunk_;
  Trial all_, none_;
};

bool is_none(const RecomputeLayersOption& option) {
  return std::ranges::all_of(option.layers, [](std::int64_t layers) { return layers == 0; });
}

// Takes the step, the memory and whether it fits from a plan of the policy that searches.
void judge(Inputs inputs, const Profile& profile, const std::string& searched, const RecomputeLayersChoice& choice,
           RecomputeLayersOption& option) {
  inputs.layout = with_chosen({{}, {option, choice.options.back()}, 0, {}}, inputs.layout);
  inputs.budget_s = std::min(inputs.budget_s, kSearchSeconds);
  static_cast<PlanOutcome&>(option) = outcome_of(inputs, profile, searched);
}

}  // namespace

RecomputeLayersChoice choose_recompute_layers(const Inputs& inputs, const Profile& profile, const std::string& policy,
                                              const std::string& searched) {
  if (inputs.layout.directions() > 1) {
    fail("--recompute-layers auto: is not for --schedule {}, whose stages hold two parts of the model",
         row_of(inputs.layout.schedule).name);
  }
  const RecomputeTrials trials(inputs, profile, policy);
  RecomputeLayersChoice choice{searched.empty() ? policy : searched, {trials.fewest(1)}, 0, trials.none()};
  const auto add = [&](const RecomputeLayersOption& option) {
    if (option.layers != choice.options.back().layers) choice.options.push_back(option);
  };
  if (!searched.empty()) {
    for (const double share : kSharesOfMemory) add(trials.fewest(share));
  }
  add(trials.all());
  if (searched.empty()) return choice;
  for (RecomputeLayersOption& option : choice.options) judge(inputs, profile, searched, choice, option);
  const auto best = std::ranges::min_element(choice.options, is_better);
  choice.chosen = static_cast<std::size_t>(best - choice.options.begin());
  return choice;
}

Layout with_chosen(const RecomputeLayersChoice& choice, Layout layout) {
  layout.recompute_layers = choice.best().layers;
  if (choice.best().layers == choice.options.back().layers) layout.recompute_layers.clear();
  if (is_none(choice.best())) {
    layout.recompute = Recompute::none;
    layout.recompute_layers.clear();
  }
  return layout;
}

std::string recompute_layers_line(const RecomputeLayersChoice& choice) {
  const RecomputeLayersOption &best = choice.best(), &fewest = choice.options.front(), &all = choice.options.back();
  const bool is_all = best.layers == all.layers;
  const auto layers_of = [](const RecomputeLayersOption& option) {
    return is_none(option) ? std::string("none") : fmt::format("{} layers", fmt::join(option.layers, ","));
  };
  std::string text = is_all ? "all layers" : layers_of(best);
  if (choice.chosen == 0 && is_none(best)) {
    text += ", because all activations fit";
  } else if (choice.chosen == 0 && best.fits) {
    text += ", the fewest that fit";
  }
  text += ": " + in_words(best);
  if (choice.chosen > 0) text += fmt::format("; the fewest, {}, {}", layers_of(fewest), in_words(fewest));
  if (!is_all) text += "; all layers " + in_words(all);
  if (!is_none(fewest)) text += fmt::format("; none does not fit ({})", format_bytes(choice.none.memory));
  return text + fmt::format(" (predicted with {})", choice.policy);
}

}  // namespace weft
