#include "plan/policy/serial.hpp"

#include "plan/policy/overlap.hpp"

namespace weft {

Plan serial_plan(const PlanRequest& request, const StepGraph& graph) {
  return overlapped_plan(request, graph, "serial", {.buckets = one_bucket(graph)});
}

}  // namespace weft
