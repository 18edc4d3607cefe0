// Plans for the tests of exported files.
#pragma once

#include <string>

#include "cluster/presets.hpp"
#include "cost/profile.hpp"
#include "io/export/export_format.hpp"
#include "model/presets.hpp"
#include "planner/policy/policy.hpp"

namespace weft::test {

struct ExportCase {
  const char* model;
  std::int64_t layers;
  const char* cluster;
  Layout layout;  // dp, global_batch and seq are filled in
  const char* policy;
  PolicyOptions options = {};
  std::int64_t seq = 128;
};

inline Plan plan_of(const ExportCase& example) {
  PlanRequest request;
  request.model = model_preset(example.model);
  request.model.layers = example.layers;
  request.cluster = parse_cluster(example.cluster);
  request.layout = example.layout;
  request.options = example.options;
  const Cluster cluster(request.cluster);
  Layout& layout = request.layout;
  layout.seq = example.seq;
  layout.dp = cluster.device_count() / (layout.tp * layout.cp * layout.pp);
  layout.global_batch = 4 * layout.micro_batch * layout.dp;
  return make_plan(request, build_step_graph(request.model, cluster, layout), example.policy);
}

inline Exported export_case(const ExportCase& example, const ExportFormat& format) {
  const WholePlan whole(plan_of(example));
  return export_plan(whole, default_profile(), format);
}

}  // namespace weft::test
