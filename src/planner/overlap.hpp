// What the policies share: the way from a graph and a choice of buckets to a plan. A policy says which transfers
// travel together and which run beside computation.
#pragma once

#include <string>
#include <vector>

#include "planner/partition/layer_cuts.hpp"
#include "planner/partition/merge.hpp"
#include "planner/plan_request.hpp"

namespace weft {

struct Overlap {
  std::vector<MergeSet> buckets;         // their order does not matter
  std::vector<std::int32_t> parts = {};  // by operation: into how many it is cut (partition/cut.hpp); empty: no cuts
  // By operation: the rule by which it is carried out in stages (partition/substitute.hpp); empty: none is. Stages are
  // merged and cut as their operation would be, and go to queues of their own.
  std::vector<Substitution> substitutions = {};
  // Gradient reductions start as soon as backward has finished their gradients: the once-a-step ones of ZeRO 0 and 1,
  // the per-layer ones that ZeRO 2 and 3 make in every micro-batch.
  bool reductions = false;
  // Parameter gathers run under the next iteration's forward; those of ZeRO 3 ahead of the layer that needs them.
  bool gathers = false;
  int prefetch = 1;          // layers that ZeRO 3 gathers ahead
  int gradient_buffers = 2;  // layers whose whole gradients ZeRO 2 and 3 hold at a time
  bool receives = false;     // pipeline messages arrive under computation
  // What a step does once goes in the order in which the next iteration needs it (schedule/urgent_first.hpp).
  bool urgent_first = false;
  bool hold_back = true;  // with it: stages behind the first reduce when their backward has ended
  // Layers are cut by rows into so many parts, in forward and in backward, and the traffic of tensor parallelism runs
  // beside compute.
  std::int32_t forward_rows = 1, backward_rows = 1;
  bool tensor_parallel = false;
  bool linear_backward = false;  // of it only what schedule/overlap_linear.hpp says
  // Cuts of single operations of layers, in place of these; empty: none. With expert_parallel the all-to-alls of
  // experts run beside compute, and rows are cut in layers with experts too.
  LayerCuts layers = {};
  bool cut_transfers = false;  // transfers of tensor parallelism that `layers` cuts run beside compute
  bool expert_parallel = false;
  bool parts_in_turn = false;       // parts in the order that schedule/part_order.hpp gives them
  bool wait_for_last_part = false;  // of the gradients that return to their tokens: weight gradients do not hide it
  std::vector<OpId> hides = {};     // weight gradients that hide all-to-alls (schedule/weight_grad_fill.hpp)
  bool reduce_in_gaps = false;      // reductions run between all-to-alls (schedule/reductions_in_gaps.hpp)
  bool weave = false;               // the order of operations is chosen so that transfers hide (schedule/weave.hpp)
  bool weave_within_layers = false;
  // The forward of a micro-batch and the backward of an earlier one run side by side, each behind the other's traffic;
  // more micro-batches are then under way. With `weave`, ZeRO 0 and 1, several micro-batches and not GPipe.
  bool pairs = false;
  bool pairs_in_order = false;    // forward and backward each in the order of the model; only their turns are chosen
  std::int64_t weave_visits = 0;  // what the search for that order may cost beyond the first good one
  friend bool operator==(const Overlap&, const Overlap&) = default;
};
// Messages of the interleaved schedule are posted ahead by default (Megatron's --overlap-p2p-communication); 1F1B's and
// GPipe's are waited for.
bool receives_early(const PlanRequest& request);

// No step of the plan that follows is shorter: what a rank computes, and the layer traffic that it waits for on the
// spot. Found without the plan, in a small part of the time that this takes.
double least_step_seconds(const PlanRequest& request, const StepGraph& graph, const Overlap& overlap);

WholePlan overlapped_plan(const PlanRequest& request, const SharedGraph& graph, std::string name,
                          const Overlap& overlap);

}  // namespace weft
