// Decides by prediction whether gradients are reduced in every micro-batch or once a step.
#pragma once

#include <string>
#include <vector>

#include "cost/profile.hpp"
#include "study/plan/plan_outcome.hpp"

namespace weft {

struct ReduceEveryOption : PlanOutcome {
  std::int64_t reduce_every = 0;  // as Layout::reduce_every
};

struct ReduceEveryChoice {
  std::string policy;                      // that steps were predicted with
  std::vector<ReduceEveryOption> options;  // once a step, then in every micro-batch
  std::size_t chosen = 0;
};

// Of those that fit in memory, the faster one is chosen; where none fits, the one that needs less memory. Groups of
// micro-batches in between are not among the options: they move more than a reduction once a step, hold as many
// gradients, and their last reduction has as many bytes and begins as late.
ReduceEveryChoice choose_reduce_every(const Inputs& inputs, const Profile& profile, const std::string& policy);

// "step: 1.20 s a step and 40.1 GiB, every micro-batch 1.35 s and 32.0 GiB (predicted with priority)"
std::string reduce_every_line(const ReduceEveryChoice& choice);

}  // namespace weft
