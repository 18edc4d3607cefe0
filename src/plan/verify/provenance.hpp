// Checks that the plan's graph is the model's, merely cut and merged, and that members of a group order transfers
// alike.
#pragma once

#include <optional>

#include "plan/verify/verify_plan.hpp"

namespace weft {

// `original` is the graph of the plan's model, cluster and layout. Every operation of it must be covered exactly once
// by the origins of the plan's operations, with the same reads, writes and bytes. Where the plan carries transfers out
// in legs (plan/verify/legs.hpp), that is said of the graph with the plan's rules applied.
std::optional<Violation> check_provenance(const Plan& plan, const StepGraph& original);

// There is a program of every transfer, and members of one transfer carry out the same one.
std::optional<Violation> check_algorithms(const Plan& plan);

// Members of a transfer issue it to queues that match one to one (plan/shared_queues.hpp).
std::optional<Violation> check_queues(const Plan& plan);

// On queues that match, members issue the transfers that they share in the same order.
std::optional<Violation> check_collective_order(const WholePlan& whole);

}  // namespace weft
