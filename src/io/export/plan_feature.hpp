// What a plan says, feature by feature, so that an export can account for each: it is in the exported file, or it is
// listed as left out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/plan.hpp"

namespace weft {

enum class Feature : std::uint8_t {
  // The model and the layout.
  model,
  batches,
  tensor_parallel,
  sequence_parallel,
  context_parallel,
  data_parallel,
  pipeline,
  model_chunks,
  schedule,
  stage_layers,
  token_slices,
  expert_parallel,
  expert_tensor_parallel,
  expert_exchange,
  expert_dispatch_fp8,
  expert_forwarding,
  mesh_order,
  device_map,
  zero,
  zero_shards,
  zero_secondary,
  layer_groups,
  reduce_every,
  precision,
  low_precision_products,
  gradient_type,
  gradient_compression,
  weight_compression,
  gradient_clipping,
  kfac,
  user_tasks,
  work_that_waits,
  dropout,
  recompute,
  attention_kernel,
  // What the policy decided.
  gradient_buckets,
  reductions_beside_compute,
  gathers_beside_compute,
  messages_beside_compute,
  prefetch,
  tensor_parallel_parts,
  expert_parts,
  woven_passes,
  transfer_parts,
  transfer_legs,
  programs,
  thread_blocks,
  movers,
  queues,
  waits,
  operation_order
};

struct PlanFeature {
  Feature feature;
  std::string words;  // "pp 4: pipeline stages"
};

// Returns what the plan says beyond the defaults of a training job on one device, in the order of the enumeration.
std::vector<PlanFeature> features_of(const Plan& plan);

// What the policy decided about transfers, as launchers know it.
struct TransferFacts {
  bool reductions_beside_compute = false;   // of gradients
  bool gathers_beside_compute = false;      // of parameters
  bool messages_beside_compute = false;     // of the pipeline
  bool tensor_parallel_parts = false;       // transfers of tensor parallelism are cut into parts with their products
  std::int64_t tensor_parallel_pieces = 1;  // the most that one of them is cut into
  bool expert_parts = false;                // all-to-alls of experts are cut into parts
  bool experts_beside_compute = false;      // all-to-alls of experts
  bool woven = false;                       // blocks are woven into each other
  int prefetch = 0;                         // layers whose parameters ZeRO 3 gathers ahead
};
TransferFacts transfer_facts(const Plan& plan);

}  // namespace weft
