// Graphs for the tests of this folder: a model cut to a few layers, a cluster by name, a layout filled in.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>

#include "cluster/presets.hpp"
#include "graph/step_graph.hpp"
#include "model/presets.hpp"

namespace weft::test {

inline Transformer with_layers(std::string_view name, std::int64_t layers) {
  Transformer model = model_preset(name);
  model.layers = layers;
  return model;
}

// dp from the devices, seq 64 where none is given, `micro_batches` of them in the step.
inline Layout filled(Layout layout, std::int64_t devices, std::int64_t micro_batches = 2) {
  layout.dp = devices / (layout.tp * layout.cp * layout.pp);
  if (layout.seq == 0) layout.seq = 64;
  layout.global_batch = micro_batches * layout.micro_batch * layout.dp;
  return layout;
}

inline StepGraph build(const Transformer& model, std::string_view cluster, const Layout& layout,
                       std::int64_t micro_batches = 2) {
  const Cluster machine(parse_cluster(cluster));
  return build_step_graph(model, machine, filled(layout, machine.device_count(), micro_batches));
}

using OpFilter = std::function<bool(const Operation&)>;

// Instances on all ranks of the job in one step.
inline double instances(const StepGraph& graph, const Operation& op) {
  return static_cast<double>(graph.classes[op.rank_class.index()].ranks) *
         static_cast<double>(op.per_micro_batch ? graph.micro_batches : 1);
}

}  // namespace weft::test
