// A request for a plan holds the problem, the choices left to the user, and what a search may use.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "cluster/cluster.hpp"
#include "cost/profile.hpp"
#include "cost/program_cost.hpp"
#include "graph/layout.hpp"
#include "graph/userbuffers.hpp"
#include "model/transformer.hpp"
#include "plan/whole_plan.hpp"

namespace weft {

// A policy leaves these choices to its user; what is not given is as in the system that it is named after.
struct PolicyOptions {
  std::optional<std::int64_t> bucket_parameters = {};  // megatron-grad, megatron-param: Megatron's --ddp-bucket-size
  std::optional<double> bucket_mib = {};               // ddp: PyTorch's bucket_cap_mb
  int prefetch = 1;                                    // fsdp, priority: layers gathered ahead of the one in use
  std::optional<double> part_mib = {};  // priority: what gradients are cut into; by default from the cost
  // The megatron policies, by the names of Megatron's flags.
  bool tp_comm_overlap = false;
  UserbufferWish userbuffers = {};  // with it: Megatron's --tp-comm-overlap-cfg
  bool overlap_moe_expert_parallel_comm = false;
  bool delay_wgrad_compute = false;
};

// What a policy that searches needs beside the problem. `plan` never includes `sim`, so whoever asks brings it along.
struct PlanSearch {
  std::function<double(const WholePlan&)> step_seconds = {};  // the simulated step
  // How long to search, as work: the same number of simulated operations on every machine, so that the same request
  // gives the same plan. Ordinary machines do it in about that time.
  double budget_s = 10;
  std::uint64_t seed = 1;
  std::size_t jobs = 1;                             // threads; they do not change the result
  std::function<void(double share)> progress = {};  // from 0 to 1
};

struct PlanRequest {
  Transformer model;
  ClusterSpec cluster;
  Layout layout;
  Profile profile;
  PolicyOptions options = {};
  PlanSearch search = {};
  // What Weft's own programs take, shared by all plans of the request; null: every plan finds out for
  // itself.
  std::shared_ptr<ProgramCosts> programs = {};
};

}  // namespace weft
