// How unevenly the gates of a run load its experts, seen in the first batch: what sizes that are data will be.
#pragma once

#include "calibrate/passes.hpp"
#include "cost/profile.hpp"

namespace weft {

// Of one gate in one group of ranks that share experts: sent[r][d] rows go from its r-th to its d-th rank, `balanced`
// rows from each in all where loads are balanced and nothing is dropped.
ExpertLoad load_of(const std::vector<std::vector<double>>& sent, double balanced);

// All ranks call it, of a model with experts. Of every gate the rank that has most counts: the others wait for it.
ExpertLoad measure_expert_load(const Plan& plan, Communicator& communicator, CalibrationPasses& passes);

}  // namespace weft
