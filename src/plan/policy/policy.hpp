// A policy: a named way from a step graph to a plan.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cost/profile.hpp"
#include "plan/plan.hpp"

namespace weft {

// What some policies take beside the request; each says which.
struct PolicyOptions {
  int prefetch = 1;  // fsdp: layers gathered ahead of the one in use
};

struct PlanRequest {
  Transformer model;
  ClusterSpec cluster;
  Layout layout;
  Profile profile;
  PolicyOptions options = {};
};

std::vector<std::string> policy_names();
// Throws Error with the nearest name for an unknown policy, as make_plan does.
void require_policy(std::string_view name);
Plan make_plan(const PlanRequest& request, const StepGraph& graph, std::string_view policy);

}  // namespace weft
