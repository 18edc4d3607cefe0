// Decides by planned memory how few layers backward computes again.
#pragma once

#include <string>
#include <vector>

#include "cost/profile.hpp"
#include "study/plan/plan_outcome.hpp"

namespace weft {

struct RecomputeLayersOption : PlanOutcome {
  std::vector<std::int64_t> layers;  // of each model chunk, from its first on
};

struct RecomputeLayersChoice {
  std::string policy;  // that steps were predicted with
  // The fewest that fit; where the policy searches, the fewest that leave it some of the memory too, which it may use
  // to hide more; at last all layers.
  std::vector<RecomputeLayersOption> options;
  std::size_t chosen = 0;
  RecomputeLayersOption none;  // its step is predicted with a policy that does not search

  const RecomputeLayersOption& best() const { return options[chosen]; }
};

// The fewest layers of every stage are those with which it fits in its memory under `policy`; all of a stage that does
// not fit even so. Of a stage's chunks the earlier ones come first, because they hold more micro-batches. With a policy
// `searched` the option is chosen with which its step is shortest.
RecomputeLayersChoice choose_recompute_layers(const Inputs& inputs, const Profile& profile, const std::string& policy,
                                              const std::string& searched = {});

// The layout with what was chosen.
Layout with_chosen(const RecomputeLayersChoice& choice, Layout layout);

// "3,1,0,0 layers, the fewest that fit: 3.20 s a step and 75.0 GiB; all layers 3.90 s a step and 40.1 GiB; none does
// not fit (101 GiB) (predicted with priority)"
std::string recompute_layers_line(const RecomputeLayersChoice& choice);

}  // namespace weft
