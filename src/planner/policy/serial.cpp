#include "planner/policy/serial.hpp"

namespace weft {

Overlap serial_overlap(const PlanRequest&, const StepGraph& graph) {
  return {.partition = {.buckets = one_bucket(graph)}};
}

}  // namespace weft
