// Operations of experts whose sizes are data: parts cut by tokens, exchanges of filled slots only, and the weight
// gradients behind either. Plans give them the sizes of balanced loads or of all slots; this says how their real time
// compares with that.
#pragma once

#include <optional>
#include <set>
#include <utility>

#include "cost/profile.hpp"
#include "graph/step_graph.hpp"

namespace weft {

class ExpertSizes {
 public:
  // `measured` is the load that a run's gates produced (Profile::expert_load).
  ExpertSizes(const StepGraph& graph, std::optional<ExpertLoad> measured);

  bool are_data(const Operation& operation) const;
  // Returns the factor for the time of the planned sizes. `measured` says that this time was measured, not modelled.
  double factor(const Operation& operation, bool measured) const;
  // For bounds, for operations whose sizes would become data if they were cut by tokens: the factor that the least
  // load, relative to the balanced one, leaves of a weight gradient's time; 1 for others.
  double least_load(const Operation& operation) const;
  double least_of_weight_grad(const Operation& operation) const;

 private:
  double copies(const Operation& operation) const;  // of tokens, for experts
  double filled(const Operation& operation) const;  // slots that balanced loads fill, of all slots
  double load(const Operation& operation) const;

  const StepGraph& graph_;
  std::optional<ExpertLoad> measured_;
  std::set<std::pair<std::int32_t, std::int32_t>> cut_by_tokens_;  // rank class, layer
};

}  // namespace weft
