// Provenance of transfers that are carried out in legs: the rules that a plan names are applied to the model's graph
// anew, and the plan's operations are then held against the result as those of any other plan against the model.
#pragma once

#include <optional>
#include <string>

#include "graph/step_graph.hpp"

namespace weft {

bool has_legs(const StepGraph& graph);

struct LegOrigins {
  // An operation names a rule that may not be applied to its origin or does not hold for its group, a leg that the
  // rule does not have, or an origin that others carry out by another rule.
  std::optional<std::string> violation;
  StepGraph whole;  // the model's graph with the rules applied
  StepGraph graph;  // the plan's, whose origins are operations of that
};

// Rank classes of the plan's operations must be in range; nothing else is taken for granted.
LegOrigins find_leg_origins(const StepGraph& model, const StepGraph& plan);

}  // namespace weft
