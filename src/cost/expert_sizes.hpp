// Operations of experts whose sizes are data: parts that were cut by tokens, exchanges of the filled slots only, and
// the weight gradients behind either. Plans give them the sizes of balanced loads or of all slots; this says how their
// time compares with that.
#pragma once

#include <optional>
#include <set>
#include <utility>

#include "cost/profile.hpp"
#include "graph/step_graph.hpp"

namespace weft {

class ExpertSizes {
 public:
  // `measured`: what a run's gates did (Profile::expert_load).
  ExpertSizes(const StepGraph& graph, std::optional<ExpertLoad> measured);

  bool are_data(const Operation& operation) const;
  // What the time of its sizes is multiplied with. `measured`: that time is not modelled.
  double factor(const Operation& operation, bool measured) const;
  // For bounds, of operations whose sizes are not data but would be if they were cut by tokens: the least load over the
  // balanced one; what it leaves of a weight gradient's time, 1 for others.
  double least_load(const Operation& operation) const;
  double least_of_weight_grad(const Operation& operation) const;

 private:
  double filled() const;  // slots that balanced loads fill, of all slots
  double load(const Operation& operation) const;

  const StepGraph& graph_;
  std::optional<ExpertLoad> measured_;
  std::set<std::pair<std::int32_t, std::int32_t>> cut_by_tokens_;  // rank class, layer
};

}  // namespace weft
