#include "planner/search/decisions.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "graph/substitute.hpp"
#include "planner/partition/buckets.hpp"
#include "planner/partition/row_choice.hpp"
#include "planner/partition/units.hpp"
#include "planner/partition/urgent_parts.hpp"
#include "planner/schedule/extra_work.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMiB = 1024 * 1024;

bool has_data_parallel_traffic(const StepGraph& graph) {
  return std::any_of(graph.operations.begin(), graph.operations.end(), [](const Operation& op) {
    return op.communication &&
           (op.role == Role::grad_reduce || op.role == Role::shard_reduce || op.role == Role::param_gather);
  });
}

}  // namespace

DecisionSpace::DecisionSpace(const PlanRequest& request, const StepGraph& graph)
    : tensor_parallel_(request.layout.tp > 1), expert_parallel_(request.layout.ep > 1), values_(kDimensions, {0}) {
  const Layout& layout = request.layout;
  if (tensor_parallel_ || expert_parallel_) {
    values_[kForwardRows].clear();
    for (const std::int32_t rows : possible_rows(graph)) values_[kForwardRows].push_back(rows);
    values_[kBackwardRows] = values_[kForwardRows];
  } else {
    values_[kForwardRows] = values_[kBackwardRows] = {1};
  }
  if (expert_parallel_) add_expert_cuts(request, graph);
  values_[kWeave] = {1, 0};
  const bool shards = has_data_parallel_traffic(graph);
  add_buckets(request, graph);
  values_[kBuckets].clear();
  for (std::size_t i = 0; i < buckets_.size(); ++i) values_[kBuckets].push_back(static_cast<std::int64_t>(i));
  add_legs(graph);
  values_[kLegs].clear();
  for (std::size_t i = 0; i < legs_.size(); ++i) values_[kLegs].push_back(static_cast<std::int64_t>(i));
  values_[kQueues] = {1};
  for (int queues = 2; queues < request.profile.library.at_once + 1; ++queues) values_[kQueues].push_back(queues);
  if (shards) values_[kUrgentFirst] = {1, 0};
  if (expert_parallel_ && shards) values_[kReduceInGaps] = {0, 1};
  if (layout.pp > 1 && shards) values_[kHoldBack] = {1, 0};
  if (has_extra_work(layout)) values_[kFillBubbles] = {1, 0};
  if (layout.pp > 1) values_[kReceives] = {1, 0};
  values_[kPrefetch] = {1};
  if (layout.zero == 3) values_[kPrefetch] = {1, 2, 3, 4, 0};
  // Below 0: as many, and the first of a pass before it begins.
  if (layout.zero == 3 && layout.pp == 1) values_[kPrefetch] = {1, 2, 3, 4, 0, -1, -2, -3, -4};
  values_[kGradientBuffers] =
      layout.reduces_once_a_step() ? std::vector<std::int64_t>{2} : std::vector<std::int64_t>{2, 3, 4};
  const bool pairs = (tensor_parallel_ || expert_parallel_) && layout.micro_batches() > 1 && layout.zero < 3 &&
                     layout.reduces_once_a_step() && may_pair(layout) && !layout.has_slices() &&
                     layout.warm_up_depth == 0;
  if (pairs) values_[kPairs] = {0, 1};
  values_[kWeaveVisits] = {0, 3'000'000};
  const bool may_split = row_of(layout.schedule).splits_backward || row_of(layout.schedule).searched;
  if ((tensor_parallel_ || expert_parallel_) && layout.pp > 1 && may_split && layout.zero < 3 &&
      layout.reduces_once_a_step() && !layout.has_slices()) {
    values_[kGaps].clear();
    for (const GapRule rule : {GapRule::early, GapRule::spare_at_end, GapRule::held_back, GapRule::none}) {
      values_[kGaps].push_back(static_cast<std::int64_t>(rule));
    }
  }
  add_pipelines(layout);
  values_[kPipeline].clear();
  for (std::size_t i = 0; i < pipelines_.size(); ++i) values_[kPipeline].push_back(static_cast<std::int64_t>(i));
  for (const auto& options : values_) sizes_.push_back(options.size());
}

// The named schedules for so many chunks a stage, and searched ones: those that hold whatever has room, and those that
// hold half to twice the passes of 1F1B, or in loops as many to twice as many as interleaved.
void DecisionSpace::add_pipelines(const Layout& layout) {
  using enum PipelineSchedule;
  pipelines_.push_back({});
  if (!row_of(layout.schedule).searched || layout.pp == 1) return;
  const bool in_waves = row_of(layout.schedule).in_waves, in_loops = layout.vpp > 1 && !in_waves;
  const std::int64_t of_one_f_one_b = layout.pp * (in_loops ? layout.vpp + 1 : layout.vpp) + layout.slices() - 1;
  const auto add = [&](std::int64_t halves, std::int64_t room_percent) {
    const std::int64_t held =
        std::min(of_one_f_one_b * halves / 2, layout.micro_batches() * layout.vpp * layout.slices());
    const PipelineChoice choice{.most_held = std::max<std::int64_t>(held, layout.vpp), .room_percent = room_percent};
    if (std::find(pipelines_.begin(), pipelines_.end(), choice) == pipelines_.end()) pipelines_.push_back(choice);
  };
  // Room is an estimate, so there are also some that take less of it.
  for (const std::int64_t room_percent : {100, 90, 80}) add(layout.vpp > 1 ? 4 : 6, room_percent);
  const std::vector named = in_waves   ? std::vector{dualpipev, v_half, v_min}
                            : in_loops ? std::vector{breadth_first}
                                       : std::vector{zb_h1, zb_h2};
  for (const PipelineSchedule schedule : named) {
    if (schedule != unsearched(layout)) pipelines_.push_back({.named = schedule});
  }
  for (const std::int64_t halves : in_waves ? std::vector{2, 1, 3} : std::vector{2, 3, 4}) add(halves, 0);
}

void DecisionSpace::add_buckets(const PlanRequest& request, const StepGraph& graph) {
  const Cluster cluster(request.cluster);
  const CostModel cost(graph, cluster, request.profile, request.programs);
  const auto add_parts = [&](std::optional<Bytes> part) {
    UrgentParts urgent = urgent_parts(graph, cost, part);
    buckets_.push_back({std::move(urgent.sets), std::move(urgent.parts)});
  };
  add_parts({});
  if (!has_data_parallel_traffic(graph) || request.layout.zero == 3) {
    buckets_.push_back({one_bucket_per_layer(graph), {}});
    if (request.layout.zero == 3) {
      // Parts of a layer's gather arrive while products read those before them.
      for (const bool single : {false, true}) buckets_.push_back({buckets_within_layers(graph, single), {}});
    }
    return;
  }
  for (const std::int64_t mib : {1, 4, 16, 64, 256}) {
    add_parts(Bytes{mib * kMiB});
  }
  buckets_.push_back({one_bucket_per_layer(graph), {}});
  for (const std::int64_t mib : {25, 100, 400}) {
    const BucketRule rule = ddp_buckets(static_cast<double>(mib));
    buckets_.push_back({bucket_sets(graph, rule, true), {}});
  }
}

// As Lancet would cut them, as Tutel would in 2, 4 and 8 parts, or not: the order is searched for anyway. First the one
// that most steps end with.
void DecisionSpace::add_expert_cuts(const PlanRequest& request, const StepGraph& graph) {
  const Cluster cluster(request.cluster);
  const CostModel cost(graph, cluster, request.profile, request.programs);
  const auto fill = [&](bool forward, std::vector<LayerCuts>& options, std::vector<std::int64_t>& values) {
    const auto add = [&](LayerCuts cuts) {
      if (std::find(options.begin(), options.end(), cuts) == options.end()) options.push_back(std::move(cuts));
    };
    add(best_layer_cuts(graph, cost, forward).cuts);
    add(no_cuts(graph));
    for (const std::int32_t parts : {2, 4, 8}) add(expert_cuts(graph, parts, forward));
    values.clear();
    for (std::size_t i = 0; i < options.size(); ++i) values.push_back(static_cast<std::int64_t>(i));
  };
  fill(true, forward_experts_, values_[kForwardExperts]);
  fill(false, backward_experts_, values_[kBackwardExperts]);
}

void DecisionSpace::add_legs(const StepGraph& graph) {
  legs_.push_back({});
  const auto add = [&](const std::vector<Substitution>& wanted, const Nesting& nesting = {}) {
    std::vector<TransferRule> rules = first_possible_of_parameters(graph, wanted, nesting);
    const bool any = std::any_of(rules.begin(), rules.end(), [](const auto& r) { return r != Substitution::none; });
    const bool known = std::any_of(legs_.begin(), legs_.end(), [&](const LegChoice& l) { return l.rules == rules; });
    if (any && !known) legs_.push_back({std::move(rules)});
  };
  const std::vector<Substitution> two{Substitution::all_reduce_in_levels, Substitution::reduce_scatter_in_levels,
                                      Substitution::all_gather_in_levels};
  add(two);
  add({Substitution::all_reduce_in_halves});
  const std::vector<Substitution> three{
      Substitution::all_reduce_in_three_levels, Substitution::reduce_scatter_in_three_levels,
      Substitution::all_gather_in_three_levels, Substitution::all_reduce_in_levels,
      Substitution::reduce_scatter_in_levels,   Substitution::all_gather_in_levels};
  add(three);
  for (const Nesting& nesting : nestings(graph)) add(nesting.size() > 1 ? three : two, nesting);
}

Decisions DecisionSpace::start() const {
  return {std::vector<std::size_t>(kDimensions, 0)};
}

std::int64_t DecisionSpace::value(const Decisions& decisions, Dimension dimension) const {
  return values_[dimension][decisions.chosen[dimension]];
}

std::vector<LayerCuts> DecisionSpace::expert_cuts_of(bool forward) const {
  return forward ? forward_experts_ : backward_experts_;
}

std::vector<std::int32_t> DecisionSpace::rows_of(bool forward) const {
  const std::vector<std::int64_t>& values = values_[forward ? kForwardRows : kBackwardRows];
  return {values.begin(), values.end()};
}

Overlap DecisionSpace::overlap(const Decisions& decisions) const {
  const BucketChoice& bucket = buckets_[value(decisions, kBuckets)];
  Overlap overlap;
  overlap.partition.buckets = bucket.buckets;
  overlap.partition.parts = bucket.parts;
  overlap.partition.substitutions = legs_[value(decisions, kLegs)].rules;
  overlap.beside.reductions = overlap.beside.gathers = true;
  overlap.held.prefetch = std::abs(static_cast<int>(value(decisions, kPrefetch)));
  overlap.held.ahead_of_pass = value(decisions, kPrefetch) < 0;
  overlap.held.gradient_buffers = static_cast<int>(value(decisions, kGradientBuffers));
  overlap.beside.receives = value(decisions, kReceives) != 0;
  overlap.order.urgent_first = value(decisions, kUrgentFirst) != 0;
  overlap.order.queues = static_cast<int>(value(decisions, kQueues));
  overlap.order.hold_back = value(decisions, kHoldBack) != 0;
  overlap.partition.forward_rows = static_cast<std::int32_t>(value(decisions, kForwardRows));
  overlap.partition.backward_rows = static_cast<std::int32_t>(value(decisions, kBackwardRows));
  overlap.beside.tensor_parallel = tensor_parallel_;
  overlap.beside.expert_parallel = expert_parallel_;
  if (expert_parallel_) {
    overlap.partition.layers = merge_cuts(forward_experts_[value(decisions, kForwardExperts)],
                                          backward_experts_[value(decisions, kBackwardExperts)]);
    overlap.order.parts_in_turn = true;
    overlap.order.reduce_in_gaps = value(decisions, kReduceInGaps) != 0;
  }
  overlap.order.fill_bubbles = value(decisions, kFillBubbles) != 0;
  overlap.weave.enabled = value(decisions, kWeave) != 0;
  overlap.order.pipeline = pipelines_[value(decisions, kPipeline)];
  overlap.weave.pairs =
      overlap.weave.enabled && value(decisions, kPairs) != 0 && !overlap.order.pipeline.named.has_value();
  overlap.weave.visits = value(decisions, kWeaveVisits);
  overlap.order.gaps = static_cast<GapRule>(value(decisions, kGaps));
  return overlap;
}

}  // namespace weft
