#include "study/plan/fitting_layouts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <thread>

#include "base/error.hpp"
#include "base/parallel.hpp"
#include "cost/cost_model.hpp"
#include "graph/memory_bound.hpp"
#include "planner/memory_needs.hpp"
#include "planner/policy/megatron_options.hpp"
#include "planner/policy/policy.hpp"
#include "sim/simulate_plan.hpp"
#include "study/plan/recompute_layers_choice.hpp"

namespace weft {
namespace {

constexpr std::size_t kMaxDegrees = 16;  // pairs of tp and pp that are looked at
constexpr std::size_t kMaxPlanned = 3;   // changes of one pair that are planned, the bound having let them pass
constexpr std::size_t kMaxShown = 6;

struct Degrees {
  std::int64_t tp = 1, pp = 1;
};

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> found;
  for (std::int64_t d = 1; d <= number; ++d) {
    if (number % d == 0) found.push_back(d);
  }
  return found;
}

// Nearest to the present ones first: doubling or halving one of them is a step.
std::vector<Degrees> degrees_near(const Inputs& inputs, std::int64_t devices) {
  const Layout& now = inputs.layout;
  std::vector<Degrees> all;
  for (const std::int64_t tp : divisors(inputs.cluster.devices_per_node)) {  // tensor parallelism stays in a node
    for (const std::int64_t pp : divisors(devices)) {
      if (pp <= inputs.model.layers && devices % (tp * pp * now.cp) == 0) all.push_back({tp, pp});
    }
  }
  const auto steps = [](std::int64_t a, std::int64_t b) {
    return std::abs(std::log2(static_cast<double>(a) / static_cast<double>(b)));
  };
  std::stable_sort(all.begin(), all.end(), [&](const Degrees& a, const Degrees& b) {
    return steps(a.tp, now.tp) + steps(a.pp, now.pp) < steps(b.tp, now.tp) + steps(b.pp, now.pp);
  });
  if (all.size() > kMaxDegrees) all.resize(kMaxDegrees);
  return all;
}

std::string changed_flags(const Layout& from, const Layout& to) {
  std::string text;
  const auto add = [&](const std::string& flag) { text += (text.empty() ? "" : " ") + flag; };
  if (to.tp != from.tp) add(fmt::format("--tp {}", to.tp));
  if (to.pp != from.pp) add(fmt::format("--pp {}", to.pp));
  if (to.dp != from.dp) add(fmt::format("--dp {}", to.dp));
  if (to.etp != from.etp && to.etp != to.tp) add(fmt::format("--etp {}", to.etp));
  if (to.vpp != from.vpp) add(fmt::format("--vpp {}", to.vpp));
  if (to.schedule != from.schedule) add(fmt::format("--schedule {}", name_of(to.schedule)));
  if (!from.stage_layers.empty() && to.stage_layers.empty()) add("(no --stage-layers)");
  if (!from.recompute_layers.empty() && to.recompute_layers.empty()) add("(no --recompute-layers)");
  if (to.sequence_parallel && !from.sequence_parallel) add("--sequence-parallel");
  if (!to.sequence_parallel && from.sequence_parallel) add("(no --sequence-parallel)");
  if (to.zero != from.zero) add(fmt::format("--zero {}", to.zero));
  if (to.zero_shards != from.zero_shards) add(fmt::format("--zero-shards {}", to.zero_shards));
  if (from.zero_secondary > 0 && to.zero_secondary == 0) add("(no --zero-secondary)");
  if (to.layer_group != from.layer_group) add(fmt::format("--layer-group {}", to.layer_group));
  if (from.reduce_every != 0 && to.reduce_every == 0) add("(no --reduce-every)");
  if (from.warm_up_depth > 0 && to.warm_up_depth == 0) add("(no --warm-up-depth)");
  if (from.has_slices() && !to.has_slices()) add("(no --slices)");
  if (to.recompute != from.recompute) add(fmt::format("--recompute {}", name_of(to.recompute)));
  if (!to.recompute_layers.empty() && to.recompute_layers != from.recompute_layers) {
    add(fmt::format("--recompute-layers {}", fmt::join(to.recompute_layers, ",")));
  }
  if (to.micro_batch != from.micro_batch) add(fmt::format("--micro-batch {}", to.micro_batch));
  return text;
}

// The present layout at other degrees.
Layout with_degrees(const Layout& now, const Degrees& degrees, std::int64_t devices) {
  Layout layout = now;
  layout.tp = degrees.tp;
  layout.pp = degrees.pp;
  layout.dp = devices / (degrees.tp * degrees.pp * now.cp);
  if (now.etp == now.tp) layout.etp = degrees.tp;
  if (layout.tp == 1) layout.sequence_parallel = false;
  const std::int64_t ranks = layout.dp * layout.cp;  // that hold the same parameters
  if (layout.zero_shards > 0 && ranks % layout.zero_shards != 0) layout.zero_shards = ranks;
  if (layout.pp > 1 || layout.zero_secondary >= layout.shards() ||
      (layout.zero_secondary > 0 && layout.shards() % layout.zero_secondary != 0)) {
    layout.zero_secondary = 0;
  }
  if (layout.pp > 1 || layout.micro_batches() % layout.layer_group != 0) layout.layer_group = 1;
  if (layout.reduction_group() > 1 && (layout.pp > 1 || layout.micro_batches() % layout.reduce_every != 0)) {
    layout.reduce_every = 0;
  }
  if (layout.pp == 1) layout.slice_tokens.clear();
  if (layout.pp != now.pp) {
    layout.warm_up_depth = 0;
    layout.stage_layers.clear();
    if (layout.recompute_layers.size() > 1) layout.recompute_layers.clear();
    layout.vpp = 1;
    const ScheduleRow& row = row_of(layout.schedule);
    if (row.several_chunks) layout.schedule = row.searched ? PipelineSchedule::searched : PipelineSchedule::one_f_one_b;
  }
  return layout;
}

struct Variant {
  Layout layout;
  int weight;
};

// Adds the changes of sequence parallelism, ZeRO, recomputation and micro-batches, each `weight` heavier.
void add_variants(const Layout& layout, int weight, std::vector<Variant>& variants) {
  for (const bool sequence : {false, true}) {
    for (const int zero : {0, 1, 2, 3}) {
      for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
        int halvings = 0;
        for (std::int64_t rows = layout.micro_batch; rows >= 1; rows /= 2, ++halvings) {
          const bool splits = sequence && layout.tp > 1 && !layout.sequence_parallel;
          const bool shards = zero > layout.zero && layout.shards() > 1;
          const bool again = recompute > layout.recompute && layout.recompute != Recompute::local;
          if ((sequence && !splits) || (zero > 0 && !shards) || (recompute != Recompute::none && !again)) continue;
          Variant v{layout, weight};
          if (splits) v.layout.sequence_parallel = true;
          if (shards) {
            v.layout.zero = zero;
            v.layout.reduce_every = 0;
          }
          if (again) v.layout.recompute = recompute;
          v.layout.micro_batch = rows;
          v.weight += (splits ? 1 : 0) + (shards ? std::max(1, 2 * zero - 2) : 0) + halvings +
                      (again ? (recompute == Recompute::full ? 4 : 2) : 0);
          variants.push_back(std::move(v));
        }
      }
    }
  }
}

// Returns all changes beside the degrees, the smallest first: those that cost no time, then those that recompute or
// send more.
std::vector<Layout> variants_of(const Layout& layout) {
  std::vector<Variant> variants;
  add_variants(layout, 0, variants);
  if (layout.has_shard_groups()) {
    Layout one_set = layout;
    one_set.zero_shards = layout.dp * layout.cp;
    add_variants(one_set, 1, variants);
  }
  if (layout.zero_secondary > 0) {
    Layout without = layout;
    without.zero_secondary = 0;
    add_variants(without, 1, variants);
  }
  if (!layout.recompute_layers.empty()) {
    Layout all = layout;
    all.recompute_layers.clear();
    add_variants(all, 3, variants);
  }
  std::stable_sort(variants.begin(), variants.end(),
                   [](const Variant& a, const Variant& b) { return a.weight < b.weight; });
  std::vector<Layout> layouts;
  for (Variant& v : variants) layouts.push_back(std::move(v.layout));
  return layouts;
}

class FittingSearch {
 public:
  FittingSearch(const Inputs& inputs, const Profile& profile, std::string policy)
      : inputs_(inputs), profile_(profile), policy_(std::move(policy)), cluster_(inputs.cluster) {
    least_memory_ = inputs.cluster.device.memory;
    for (const NodeOverride& node : inputs.cluster.overrides) {
      if (node.device) least_memory_ = std::min(least_memory_, node.device->memory);
    }
  }

  std::optional<FittingLayout> least_change(const Degrees& degrees) const {
    std::size_t planned = 0;
    for (const Layout& layout : variants_of(with_degrees(inputs_.layout, degrees, cluster_.device_count()))) {
      if (layout == inputs_.layout || planned == kMaxPlanned) continue;
      try {
        validate(layout, inputs_.model, cluster_.device_count());
        if (memory_lower_bound(inputs_.model, layout).total() > least_memory_) continue;
        auto found = plan(layout);
        ++planned;
        if (found) return found;
      } catch (const Error&) {  // no layout of this model: other heads or layers divide
      }
    }
    return std::nullopt;
  }

  // Where the change recomputes layers that the present layout keeps, no more of them than is needed.
  FittingLayout with_fewest_recomputed(const FittingLayout& found) const {
    const Layout &now = inputs_.layout, &then = found.layout;
    const bool all = recomputes_layers(then.recompute) && then.recompute_layers.empty();
    const bool wished = now.recompute == then.recompute && now.recompute_layers.empty();
    if (!all || wished || then.directions() > 1) return found;
    const RecomputeLayersChoice choice = choose_recompute_layers(with_layout(found.layout), profile_, policy_);
    const auto fewest = plan(with_chosen(choice, found.layout));
    return fewest && fewest->step_s < found.step_s ? *fewest : found;
  }

 private:
  Inputs with_layout(const Layout& layout) const {
    Inputs inputs = inputs_;
    inputs.layout = layout;
    inputs.options = applicable_options(inputs.options, layout);
    return inputs;
  }

  std::optional<FittingLayout> plan(const Layout& layout) const {
    const Inputs inputs = with_layout(layout);
    const PlanRequest request = request_of(inputs, profile_);
    const WholePlan made = make_whole_plan(request, build_step_graph(inputs.model, cluster_, layout), policy_);
    const Plan& plan = made.plan();
    FittingLayout found{changed_flags(inputs_.layout, layout), layout, {}, 0};
    if (inputs.options.tp_comm_overlap != inputs_.options.tp_comm_overlap) found.flags += " without --tp-comm-overlap";
    if (inputs.options.overlap_moe_expert_parallel_comm != inputs_.options.overlap_moe_expert_parallel_comm) {
      found.flags += " without --overlap-moe-expert-parallel-comm";
    }
    const MemoryVerdict memory = judge_memory(plan, profile_);
    if (!memory.fits) return std::nullopt;
    found.memory = memory.needed;
    const CostModel cost(plan.graph, cluster_, profile_);
    found.step_s = simulated_period_ns(made, cost) * 1e-9;
    return found;
  }

  const Inputs& inputs_;
  const Profile& profile_;
  std::string policy_;
  Cluster cluster_;
  Bytes least_memory_;
};

std::string policy_to_plan_with(const PlanStudy& study) {
  const PolicyStudy* best = nullptr;
  for (const PolicyStudy& p : study.policies) {
    const std::vector<std::string> known = policy_names();
    if (std::find(known.begin(), known.end(), p.policy) == known.end() || searches(p.policy)) continue;
    if (best == nullptr || p.step_s < best->step_s) best = &p;
  }
  return best != nullptr ? best->policy : "megatron-param";
}

}  // namespace

FittingLayouts find_fitting_layouts(const PlanStudy& study, const Profile& profile) {
  FittingLayouts result{policy_to_plan_with(study), {}};
  const FittingSearch search(study.inputs, profile, result.policy);
  const std::vector<Degrees> degrees = degrees_near(study.inputs, study.devices);
  std::vector<std::optional<FittingLayout>> found(degrees.size());
  parallel_for(degrees.size(), std::thread::hardware_concurrency(),
               [&](std::size_t i) { found[i] = search.least_change(degrees[i]); });
  for (std::optional<FittingLayout>& layout : found) {
    if (layout) result.layouts.push_back(std::move(*layout));
  }
  const auto sort_by_step = [&] {
    std::stable_sort(result.layouts.begin(), result.layouts.end(),
                     [](const FittingLayout& a, const FittingLayout& b) { return a.step_s < b.step_s; });
  };
  sort_by_step();
  if (result.layouts.size() > kMaxShown) result.layouts.resize(kMaxShown);
  parallel_for(result.layouts.size(), std::thread::hardware_concurrency(),
               [&](std::size_t i) { result.layouts[i] = search.with_fewest_recomputed(result.layouts[i]); });
  sort_by_step();
  return result;
}

}  // namespace weft
