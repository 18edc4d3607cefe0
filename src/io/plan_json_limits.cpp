#include "io/plan_json_limits.hpp"

#include "base/error.hpp"

namespace weft {

void check_plan_limits(const Transformer& model, const ClusterSpec& cluster, const Layout& layout) {
  if (model.layers > kMaxPlanLayers) {
    fail("model '{}' has {} layers; a plan file is for at most {}", model.name, model.layers, kMaxPlanLayers);
  }
  try {
    validate(layout, model, cluster.nodes * cluster.devices_per_node);
  } catch (const Error& error) {
    fail("layout: {}", error.what());
  }
}

}  // namespace weft
