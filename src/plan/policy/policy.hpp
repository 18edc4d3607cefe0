// A policy: a named way from a step graph to a plan.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cost/profile.hpp"
#include "cost/program_cost.hpp"
#include "plan/plan.hpp"
#include "plan/unfold.hpp"

namespace weft {

// Choices that a policy leaves to its user; what is not given is as in the system it is named after.
struct PolicyOptions {
  std::optional<std::int64_t> bucket_parameters = {};  // megatron-grad, megatron-param: Megatron's --ddp-bucket-size
  std::optional<double> bucket_mib = {};               // ddp: PyTorch's bucket_cap_mb
  int prefetch = 1;                                    // fsdp, priority: layers gathered ahead of the one in use
  std::optional<double> part_mib = {};  // priority: what gradients are cut into; by default from the cost
  // The megatron policies, by the names of Megatron's flags.
  bool tp_comm_overlap = false;
  bool overlap_moe_expert_parallel_comm = false;
  bool delay_wgrad_compute = false;
};

struct Overlap;
struct UnfoldedPlan {
  Plan plan;
  Unfolded unfolded;  // of `plan`
};

// What a policy that searches needs beside the problem. `plan` never includes `sim`, so whoever asks brings it along.
struct PlanSearch {
  std::function<double(const UnfoldedPlan&)> step_seconds = {};  // the simulated step
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
  // What programs of an emulated cluster take, shared by all plans of the request; null: every plan finds out for
  // itself.
  std::shared_ptr<ProgramCosts> programs = {};
};

std::vector<std::string> policy_names();    // those with a name of their own; `megatron` is megatron-param
bool searches(std::string_view policy);     // it needs PlanRequest::search
bool cuts_layers(std::string_view policy);  // where they communicate
bool of_experts(std::string_view policy);   // it does what `ddp` does where no all-to-alls of experts are
// Throws Error with the nearest name for an unknown policy, as make_plan does.
void require_policy(std::string_view name);
Plan make_plan(const PlanRequest& request, const StepGraph& graph, std::string_view policy);

// The same in two steps, for callers that compare policies or go on to verify and simulate: what a policy decides
// (policy/overlap.hpp), and the plan that follows. Policies that decide the same give the same plan but for its name.
Overlap decide_overlap(const PlanRequest& request, const StepGraph& graph, std::string_view policy);
UnfoldedPlan make_unfolded_plan(const PlanRequest& request, const StepGraph& graph, std::string_view policy,
                                const Overlap& overlap);

}  // namespace weft
