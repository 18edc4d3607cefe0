// `--lengths`: batches of several sequence lengths, one plan for each (docs/running.md).
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "app/flags.hpp"
#include "app/run/run_options.hpp"
#include "app/world/world.hpp"

namespace weft {

void declare_lengths_flag(Flags& flags);
// Ascending; empty where the flag is not given. Sets --seq to the longest: what a model's positions must reach.
std::vector<std::int64_t> read_lengths(Flags& flags);

// `weft plan --lengths`: every length planned by itself.
int run_plan_of_lengths(const Flags& flags, Inputs inputs, const std::vector<std::int64_t>& lengths,
                        const std::vector<std::string>& policies, std::ostream& out, std::ostream& err);
// `weft run --lengths`: of each length the policy with the shortest prediction; the batch of a step says which plan
// runs.
int run_training_of_lengths(const Flags& flags, const std::vector<std::int64_t>& lengths, const RunOptions& options,
                            const Launch& launch, std::ostream& out, std::ostream& err);

}  // namespace weft
