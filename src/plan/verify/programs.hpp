// The rule that every program which a plan carries does what the transfers that name it need.
#pragma once

#include <optional>

#include "plan/verify/verify_plan.hpp"

namespace weft {

// Every carried program is proven for every timing, in the forms of buffers in which transfers may need it: an
// all_reduce in place, an all_to_all with two buffers, an all_gather and a reduce_scatter in both. Where it has steps
// in switches, the cluster must have as many between the ranks of every transfer.
std::optional<Violation> check_carried_programs(const Plan& plan);

}  // namespace weft
