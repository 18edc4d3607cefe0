// An Overlap is what a policy decides: the record of the choices that the planner's passes take (planner/passes.cpp).
// It is plain data, so policies compare, and a search walks over such values.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "graph/userbuffers.hpp"
#include "planner/partition/partition_graph.hpp"
#include "planner/plan_request.hpp"
#include "planner/schedule/beside_compute.hpp"
#include "planner/schedule/layer_order.hpp"
#include "planner/schedule/pipeline_search.hpp"
#include "planner/schedule/weight_grads_in_gaps.hpp"

namespace weft {

// How many layers ZeRO 2 and 3 hold whole beside the one in use (schedule/overlap_zero.hpp).
struct LayersHeld {
  int prefetch = 1;            // layers whose parameters ZeRO 3 gathers ahead
  bool ahead_of_pass = false;  // and whether the first of a pass are gathered before it begins
  int gradient_buffers = 2;    // layers whose whole gradients ZeRO 2 and 3 hold at a time
  friend bool operator==(const LayersHeld&, const LayersHeld&) = default;
};

struct OrderChoice {
  bool parts_in_turn = false;    // parts in the order that schedule/part_order.hpp gives them
  std::vector<OpId> hides = {};  // weight gradients that hide all-to-alls (schedule/weight_grad_fill.hpp)
  // What a step does once goes in the order in which the next iteration needs it (schedule/urgent_first.hpp).
  bool urgent_first = false;
  bool hold_back = true;         // with it: stages behind the first reduce when their backward has ended
  bool reduce_in_gaps = false;   // reductions run between all-to-alls (schedule/reductions_in_gaps.hpp)
  bool fill_bubbles = false;     // what may wait runs while compute waits (schedule/extra_work.hpp)
  LayerOrder by_layers = {};     // without pairs
  PipelineChoice pipeline = {};  // without pairs
  GapRule gaps = GapRule::none;  // what hides the traffic of layers where backward is split
  int queues = 1;                // on which transfers beside compute take turns (schedule/spread_queues.hpp)
  friend bool operator==(const OrderChoice&, const OrderChoice&) = default;
};

// The order of operations is chosen so that transfers hide (schedule/weave.hpp).
struct WeaveChoice {
  bool enabled = false;
  bool within_layers = false;
  // The forward of a micro-batch and the backward of an earlier one run side by side, each behind the other's traffic;
  // more micro-batches are then under way. ZeRO 0 and 1, several micro-batches and not GPipe.
  bool pairs = false;
  // Weight gradients, reductions and updates may run under the next forward (schedule/late_order.hpp), and those of so
  // many of the last layers do; -1: none does. Where the plan does not allow that, it is woven as usual.
  std::int32_t late_layers = -1;
  bool is_late() const { return late_layers >= 0; }
  bool free_weight_grads = false;  // schedule/weave.hpp
  bool pairs_in_order = false;     // forward and backward each in the order of the model; only their turns are chosen
  std::int64_t visits = 0;         // what the search for that order may cost beyond the first good one
  friend bool operator==(const WeaveChoice&, const WeaveChoice&) = default;
};

// Who moves the bytes of transfers that run beside compute, where a node's GPUs allow a choice (schedule/movers.hpp).
enum class MoverRule : std::uint8_t {
  library,     // the library's own thread blocks
  least_loss,  // whoever takes least from compute, as if all of the transfer were hidden
  in_balance   // the same, and what makes the transfer longer counts as if it were exposed
};

// The transfers that one decision is for: those of a collective, group and scope, by what they serve.
struct MoverKind {
  Collective collective = Collective::all_reduce;
  GroupKind group = GroupKind::dp;
  Scope scope = Scope::whole;
  LevelSizes levels = kOwnLevels;
  Role role = Role::grad_reduce;
  Phase phase = Phase::forward;
  friend bool operator==(const MoverKind&, const MoverKind&) = default;
};

struct MoverChoice {
  MoverRule rule = MoverRule::library;
  std::vector<std::pair<MoverKind, MoverRule>> by_kind = {};  // in place of `rule`
  // Userbuffers move the transfers of tensor parallelism beside compute, whatever the rules say; none: they do not.
  std::optional<UserbufferTable> userbuffers = {};
  friend bool operator==(const MoverChoice&, const MoverChoice&) = default;
};

struct Overlap {
  PartitionChoice partition = {};
  BesideCompute beside = {};
  LayersHeld held = {};
  OrderChoice order = {};
  WeaveChoice weave = {};
  MoverChoice movers = {};
  friend bool operator==(const Overlap&, const Overlap&) = default;
};

// Messages of the interleaved schedule are posted ahead by default (Megatron's --overlap-p2p-communication); 1F1B's and
// GPipe's are waited for.
bool receives_early(const PlanRequest& request);

// Returns a time that no step of the plan that follows beats: what a rank computes, and the layer traffic that it waits
// for on the spot. It is found without the plan, in a small part of the time that this takes.
double least_step_seconds(const PlanRequest& request, const StepGraph& graph, const Overlap& overlap);

}  // namespace weft
