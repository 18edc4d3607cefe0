// Decides by planned memory how few layers backward computes again.
#pragma once

#include <string>
#include <vector>

#include "cost/profile.hpp"
#include "study/inputs.hpp"

namespace weft {

struct RecomputeLayersOption {
  std::vector<std::int64_t> layers;  // of each model chunk, from its first on
  double step_s = 0;                 // predicted
  Bytes memory;                      // of the fullest stage
  bool fits = true;
};

struct RecomputeLayersChoice {
  std::string policy;  // that steps were predicted with
  RecomputeLayersOption fewest, none, all;
};

// The fewest layers of every stage with which it fits in its memory; all of a stage that does not fit even so. Of a
// stage's chunks the earlier ones come first, because they hold more micro-batches.
RecomputeLayersChoice choose_recompute_layers(const Inputs& inputs, const Profile& profile, const std::string& policy);

// The layout with the fewest.
Layout with_fewest(const RecomputeLayersChoice& choice, Layout layout);

// "3,1,0,0 layers, the fewest that fit: 3.20 s a step and 75.0 GiB; all 3.90 s and 40.1 GiB; none 2.90 s and 101 GiB,
// which does not fit (predicted with priority)"
std::string recompute_layers_line(const RecomputeLayersChoice& choice);

}  // namespace weft
