#include "plan/whole_plan.hpp"

namespace weft {

WholePlan::WholePlan(Plan plan)
    : plan_(std::move(plan)),
      unfolded_(plan_),
      original_(build_step_graph(plan_.model, Cluster(plan_.cluster), plan_.layout)) {}

}  // namespace weft
