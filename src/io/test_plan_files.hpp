// Plans for the tests of plan files: a model cut to a few layers, a cluster by name, a layout filled in.
#pragma once

#include <sstream>
#include <string>

#include "cluster/presets.hpp"
#include "io/plan_json.hpp"
#include "model/presets.hpp"
#include "planner/policy/policy.hpp"

namespace weft::test {

struct PlanCase {
  const char* name;
  const char* model;
  std::int64_t layers;
  const char* cluster;
  Layout layout;  // dp, global_batch and, where it is 0, seq are filled in
  std::int64_t micro_batches;
};

inline void PrintTo(const PlanCase& example, std::ostream* out) {
  *out << example.name;
}

inline Plan plan_of(const PlanCase& example, const std::vector<NodeOverride>& overrides = {}) {
  PlanRequest request;
  request.model = model_preset(example.model);
  request.model.layers = example.layers;
  request.cluster = parse_cluster(example.cluster);
  request.cluster.overrides = overrides;
  request.layout = example.layout;
  const Cluster cluster(request.cluster);
  Layout& layout = request.layout;
  if (layout.seq == 0) layout.seq = 64;
  layout.dp = cluster.device_count() / (layout.tp * layout.cp * layout.pp);
  layout.global_batch = example.micro_batches * layout.micro_batch * layout.dp;
  return make_plan(request, build_step_graph(request.model, cluster, layout), "serial");
}

inline std::string text_of(const Plan& plan) {
  std::ostringstream out;
  write_plan_json(out, plan);
  return out.str();
}

}  // namespace weft::test
