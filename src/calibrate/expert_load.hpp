// Measures in the first batch how unevenly the gates of a run load its experts, which decides sizes that are data.
#pragma once

#include "calibrate/passes.hpp"
#include "cost/profile.hpp"

namespace weft {

// The load of one gate in one group of ranks that share experts: sent[r][d] rows go from its r-th to its d-th rank;
// `balanced` rows would leave each rank if loads were balanced and nothing were dropped.
ExpertLoad load_of(const std::vector<std::vector<double>>& sent, double balanced);

// All ranks call it, for a model with experts. For every gate the rank with the highest load counts, because the others
// wait for it.
ExpertLoad measure_expert_load(const Plan& plan, Communicator& communicator, CalibrationPasses& passes);

}  // namespace weft
