// A plan together with all that is needed to read it: the plan written out, and the graph of the model that its
// operations name as their origins. Verifier, simulator and runtime take this value; nobody rebuilds a part of it.
#pragma once

#include "graph/shared_graph.hpp"
#include "plan/plan.hpp"
#include "plan/unfold.hpp"

namespace weft {

class WholePlan {
 public:
  // `original` is what build_step_graph gives for the plan's model, cluster and layout. Throws Error as Unfolded does.
  WholePlan(Plan plan, SharedGraph original)
      : plan_(std::move(plan)), unfolded_(plan_), original_(std::move(original)) {}
  // The same, building that graph.
  explicit WholePlan(Plan plan);
  // For a planner that has unfolded the plan already.
  WholePlan(Plan plan, Unfolded unfolded, SharedGraph original)
      : plan_(std::move(plan)), unfolded_(std::move(unfolded)), original_(std::move(original)) {}

  const Plan& plan() const { return plan_; }
  const Unfolded& unfolded() const { return unfolded_; }
  const StepGraph& original() const { return original_; }
  const SharedGraph& shared_original() const { return original_; }

 private:
  Plan plan_;
  Unfolded unfolded_;
  SharedGraph original_;
};

}  // namespace weft
