#include "planner/passes.hpp"

#include "plan/memory/place.hpp"
#include "planner/schedule/blocks.hpp"
#include "planner/schedule/early_encoding.hpp"
#include "planner/schedule/extra_work.hpp"
#include "planner/schedule/late_order.hpp"
#include "planner/schedule/movers.hpp"
#include "planner/schedule/overlap_linear.hpp"
#include "planner/schedule/overlap_receives.hpp"
#include "planner/schedule/overlap_zero.hpp"
#include "planner/schedule/part_order.hpp"
#include "planner/schedule/reduction_order.hpp"
#include "planner/schedule/reductions_in_gaps.hpp"
#include "planner/schedule/spread_queues.hpp"
#include "planner/schedule/urgent_first.hpp"
#include "planner/schedule/user_tasks.hpp"
#include "planner/schedule/weave.hpp"
#include "planner/schedule/weight_codes.hpp"
#include "planner/schedule/weight_grads_in_gaps.hpp"

namespace weft {
namespace {

void partition(PlanDraft& draft) {
  draft.plan.graph = partition_graph(draft.model_graph, draft.overlap.partition, draft.overlap.beside.expert_parallel);
  draft.cost.emplace(draft.plan.graph, draft.cluster, draft.request.profile, draft.request.programs);
}

bool is_by_layers(const Overlap& overlap) {
  return overlap.order.by_layers.layers > 0;
}

void make_blocks(PlanDraft& draft) {
  draft.pipeline = chosen_pipeline(draft.plan, *draft.cost, draft.overlap.order.pipeline, draft.overlap.weave.pairs);
  order_blocks(draft.plan, draft.pipeline);
}

void order_urgent_first(PlanDraft& draft) {
  const Overlap& overlap = draft.overlap;
  const bool postpone = !overlap.weave.enabled && !overlap.beside.expert_parallel && !is_by_layers(overlap);
  urgent_first(draft.plan, *draft.cost, {.hold_back = overlap.order.hold_back, .postpone = postpone});
}

void weave(PlanDraft& draft) {
  const Overlap& overlap = draft.overlap;
  // The gradients of a reduction group are all in memory at a time, and so limit no order.
  const bool limits_gradients = overlap.beside.reductions && draft.plan.layout.reduction_group() == 1;
  const WeaveOptions options{.prefetch = overlap.beside.gathers ? overlap.held.prefetch : -1,
                             .gradient_buffers = limits_gradients ? overlap.held.gradient_buffers : -1,
                             .within_layers = overlap.weave.within_layers,
                             .pairs_in_order = overlap.weave.pairs_in_order,
                             .free_weight_grads = overlap.weave.free_weight_grads,
                             .visits = overlap.weave.visits};
  if (overlap.weave.is_late() && may_order_late(draft.plan)) {
    order_with_late(draft.plan, *draft.cost, {overlap.weave.late_layers, overlap.weave.visits});
  } else if (overlap.weave.pairs) {
    weave_pairs(draft.plan, *draft.cost, draft.pipeline, options);
  } else {
    weave_blocks(draft.plan, *draft.cost, options);
    if (is_by_layers(overlap)) order_by_layers(draft.plan, overlap.order.by_layers);  // layers begin elsewhere now
  }
}

void overlap_sharded(PlanDraft& draft) {
  const Overlap& overlap = draft.overlap;
  overlap_sharded_traffic(draft.plan, {.gathers = overlap.beside.gathers,
                                       .reductions = overlap.beside.reductions,
                                       .prefetch = overlap.held.prefetch,
                                       .ahead_of_pass = overlap.held.ahead_of_pass,
                                       .gradient_buffers = overlap.held.gradient_buffers});
  decode_beside(draft.plan);
}

constexpr PlanFacts kGraph = facts({PlanFact::graph}), kPrograms = facts({PlanFact::programs}),
                    kQueues = facts({PlanFact::queues}), kBlocking = facts({PlanFact::blocking}),
                    kBlocks = facts({PlanFact::blocks}), kPositions = facts({PlanFact::positions}),
                    kMemory = facts({PlanFact::memory});

constexpr Pass kPasses[] = {
    {.name = "partition", .leaves = kGraph, .run = partition},
    {.name = "choose algorithms",
     .needs = kGraph,
     .leaves = kPrograms,
     .run = [](PlanDraft& d) { choose_algorithms(d.plan.graph, *d.cost); }},
    {.name = "queues", .needs = kGraph, .leaves = kQueues, .run = [](PlanDraft& d) { issue_by_group(d.plan); }},
    {.name = "block on transfers",
     .needs = kQueues,
     .leaves = kBlocking,
     .run = [](PlanDraft& d) { block_on_transfers(d.plan); }},
    {.name = "beside compute",
     .needs = kQueues | kBlocking,
     .run = [](PlanDraft& d) { let_run_beside_compute(d.plan, d.overlap.beside); }},
    {.name = "blocks", .needs = kGraph | kBlocking, .leaves = kBlocks, .run = make_blocks},
    {.name = "parts in turn",
     .needs = kBlocks | kBlocking,
     .precedes = kPositions,
     .applies = [](const Overlap& o) { return o.order.parts_in_turn; },
     .run = [](PlanDraft& d) { order_parts_in_turn(d.plan); }},
    {.name = "weight gradients behind all-to-alls",
     .needs = kBlocks,
     .precedes = kPositions,
     .applies = [](const Overlap& o) { return !o.order.hides.empty(); },
     .run = [](PlanDraft& d) { move_weight_grads(d.plan, d.overlap.order.hides); }},
    {.name = "layer order",
     .needs = kBlocks | kBlocking,
     .precedes = kPositions,
     .applies = [](const Overlap& o) { return is_by_layers(o) && !o.weave.pairs; },
     .run = [](PlanDraft& d) { order_by_layers(d.plan, d.overlap.order.by_layers); }},
    {.name = "urgent first",
     .needs = kBlocks | kBlocking | kPrograms,
     .precedes = kPositions,
     .applies = [](const Overlap& o) { return o.order.urgent_first; },
     .run = order_urgent_first},
    {.name = "reductions as backward ends",
     .needs = kBlocks,
     .precedes = kPositions,
     .applies = [](const Overlap& o) { return o.beside.reductions && !o.order.urgent_first; },
     .run = [](PlanDraft& d) { order_reductions_by_backward(d.plan, d.overlap.order.hides.empty()); }},
    {.name = "weave",
     .needs = kBlocks | kBlocking | kPrograms,
     .precedes = kPositions,
     .applies = [](const Overlap& o) { return o.weave.enabled; },
     .run = weave},
    {.name = "weight gradients in gaps",
     .needs = kBlocks | kBlocking | kPrograms,
     .precedes = kPositions,
     .applies = [](const Overlap& o) { return o.order.gaps != GapRule::none; },
     .run = [](PlanDraft& d) { fill_gaps_with_weight_grads(d.plan, *d.cost, d.overlap.order.gaps); }},
    {.name = "encodings during backward",
     .needs = kBlocks | kBlocking | kPrograms,
     .precedes = kPositions,
     .applies = [](const Overlap& o) { return o.beside.reductions; },
     .run = [](PlanDraft& d) { encode_during_backward(d.plan, *d.cost, d.overlap.order.urgent_first); }},
    {.name = "gather again in turn",
     .needs = kBlocks | kBlocking,
     .leaves = kPositions,
     .applies = [](const Overlap& o) { return o.beside.linear_backward; },
     .run = [](PlanDraft& d) { gather_again_in_turn(d.plan); }},
    {.name = "sharded traffic", .needs = kBlocks | kBlocking, .leaves = kPositions, .run = overlap_sharded},
    {.name = "receives",
     .needs = kBlocking,
     .precedes = kMemory,
     .applies = [](const Overlap& o) { return o.beside.receives; },
     .run = [](PlanDraft& d) { overlap_receives(d.plan); }},
    {.name = "reductions between all-to-alls",
     .needs = kBlocks | kBlocking | kPrograms,
     .precedes = kMemory,
     .applies = [](const Overlap& o) { return o.order.reduce_in_gaps && !is_by_layers(o) && !o.weave.is_late(); },
     .run = [](PlanDraft& d) { reduce_in_gaps(d.plan, *d.cost); }},
    {.name = "several queues",
     .needs = kBlocks | kBlocking | kPositions,
     .precedes = kMemory,
     .applies = [](const Overlap& o) { return o.order.queues > 1; },
     .run = [](PlanDraft& d) { spread_over_queues(d.plan, d.overlap.order.queues); }},
    {.name = "movers",
     .needs = kGraph | kBlocking | kPrograms,
     .precedes = kMemory,
     .applies = [](const Overlap& o) { return o.movers != MoverChoice{}; },
     .run = [](PlanDraft& d) { choose_movers(d.plan, *d.cost, d.overlap.movers); }},
    {.name = "tasks of users",
     .needs = kBlocks | kBlocking | kPositions,
     .precedes = kMemory,
     .run = [](PlanDraft& d) { place_tasks(d.plan, d.model_graph); }},
    {.name = "work in bubbles",
     .needs = kBlocks | kBlocking | kPositions,
     .applies = [](const Overlap& o) { return o.order.fill_bubbles; },
     .run = [](PlanDraft& d) { fill_bubbles(d.plan); }},
    {.name = "memory",
     .needs = kBlocks | kBlocking | kPositions,
     .leaves = kMemory,
     .run = [](PlanDraft& d) { d.unfolded.emplace(place_values(d.plan)); }},
};

// Every pass finds what it needs, whichever of the optional ones run, and comes before what it must precede.
constexpr bool are_in_order(std::span<const Pass> passes) {
  PlanFacts certain = 0, possible = 0;
  for (const Pass& pass : passes) {
    if ((pass.needs & ~certain) != 0 || (pass.precedes & possible) != 0) return false;
    possible |= pass.leaves;
    if (pass.applies == nullptr) certain |= pass.leaves;
  }
  return true;
}
static_assert(are_in_order(kPasses));

}  // namespace

std::span<const Pass> planner_passes() {
  return kPasses;
}

WholePlan overlapped_plan(const PlanRequest& request, const SharedGraph& graph, std::string name,
                          const Overlap& overlap) {
  Plan plan;
  plan.policy = std::move(name);
  plan.model = request.model;
  plan.cluster = request.cluster;
  plan.layout = request.layout;
  plan.thread_blocks = request.profile.library.thread_blocks;
  PlanDraft draft{.request = request,
                  .model_graph = graph,
                  .overlap = overlap,
                  .cluster = Cluster(request.cluster),
                  .plan = std::move(plan)};
  for (const Pass& pass : planner_passes()) {
    if (pass.applies == nullptr || pass.applies(overlap)) pass.run(draft);
  }
  return {std::move(draft.plan), std::move(*draft.unfolded), graph};
}

}  // namespace weft
