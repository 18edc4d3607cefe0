// Plans for the tests of this folder: models small enough to follow by hand, clusters of every kind, layouts of every
// parallelism.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "cluster/presets.hpp"
#include "planner/policy/policy.hpp"

namespace weft::test {

// h 64 in 4 heads, ffn 4h: a GPT-2 layer on a small scale.
inline Transformer small_gpt(std::int64_t layers = 8) {
  Transformer m;
  m.name = "small-gpt";
  m.layers = layers;
  m.hidden = 64;
  m.heads = m.kv_heads = 4;
  m.head_dim = 16;
  m.ffn = 256;
  m.vocab = 500;
  m.max_seq = 64;
  return m;
}

// Grouped queries, SwiGLU, RMSNorm, rotary positions, separate head, no biases.
inline Transformer small_llama(std::int64_t layers = 8) {
  Transformer m = small_gpt(layers);
  m.name = "small-llama";
  m.kv_heads = 2;
  m.ffn = 192;
  m.norm = NormKind::rms_norm;
  m.activation = Activation::swiglu;
  m.positions = Positions::rotary;
  m.tied_embeddings = m.linear_bias = false;
  return m;
}

// Eight experts, two a token, in every second layer.
inline Transformer small_moe(std::int64_t layers = 8) {
  Transformer m = small_llama(layers);
  m.name = "small-moe";
  m.experts = Experts{.count = 8, .top_k = 2, .ffn = 64, .capacity_factor = 1.25, .every = 2};
  return m;
}

// Latent attention; routed and shared experts after a dense layer.
inline Transformer small_mla(std::int64_t layers = 8) {
  Transformer m = small_llama(layers);
  m.name = "small-mla";
  m.kv_heads = m.heads;
  m.head_dim = 24;
  m.latent =
      LatentAttention{.q_rank = 32, .kv_rank = 16, .nope_head_dim = 16, .rope_head_dim = 8, .value_head_dim = 16};
  m.experts = Experts{.count = 8, .top_k = 2, .ffn = 32, .shared_ffn = 64, .dense_first = 1};
  return m;
}

// Two nodes of which the second has a slower adapter: groups across them span rank classes.
inline ClusterSpec uneven_nics() {
  ClusterSpec spec = parse_cluster("dgx-a100:2");
  spec.name = "uneven";
  spec.overrides.push_back({.node = 1, .level = "nic", .bandwidth = Bandwidth{10e9}, .latency = {}, .device = {}});
  return spec;
}

// The same nodes below switches, so many below each, and a level between the switches with links like the last one's.
inline ClusterSpec below_switches(ClusterSpec spec, std::int64_t nodes_each, Bandwidth between) {
  spec.name = "switches";
  spec.nodes_per_leaf = nodes_each;
  LevelSpec spine = spec.levels.back();
  spec.levels.back().joins = Domain::leaf;
  spine.name = "spine";
  spine.bandwidth = between;
  spec.levels.push_back(spine);
  return spec;
}

struct NamedLayout {
  std::string name;
  Layout layout;
};

// On 16 devices; dp is what remains. Eight layers suffice for all.
inline std::vector<NamedLayout> layouts() {
  using enum PipelineSchedule;
  const std::vector<Axis> pp_inside{Axis::tp, Axis::pp, Axis::cp, Axis::dp};
  const std::vector<Axis> dp_inside{Axis::dp, Axis::tp, Axis::cp, Axis::pp};
  return {
      {"dp", {}},
      {"tp", {.tp = 4, .etp = 4}},
      {"tp over nodes", {.tp = 2, .etp = 2, .sequence_parallel = true, .mesh_order = dp_inside}},
      {"tp with sequence parallelism", {.tp = 2, .etp = 2, .sequence_parallel = true}},
      {"gpipe", {.pp = 4, .schedule = gpipe}},
      {"1f1b", {.pp = 4, .schedule = one_f_one_b}},
      {"deep 1f1b", {.pp = 8, .schedule = one_f_one_b}},
      {"interleaved", {.pp = 2, .vpp = 4, .schedule = interleaved}},
      {"interleaved over four", {.pp = 4, .vpp = 2, .schedule = interleaved}},
      {"searched in loops", {.pp = 4, .vpp = 2, .schedule = searched_loops}},
      {"split backward", {.pp = 4, .schedule = zb_h2}},
      {"split backward in waves", {.pp = 4, .vpp = 2, .schedule = zbv}},
      {"uneven stages", {.pp = 4, .stage_layers = {1, 4, 2, 1}}},
      {"cp", {.cp = 4}},
      {"tp and pp", {.tp = 4, .pp = 2, .etp = 4, .mesh_order = pp_inside}},
      {"tp, cp and pp",
       {.tp = 2, .cp = 2, .pp = 2, .vpp = 2, .etp = 2, .sequence_parallel = true, .schedule = interleaved}},
      {"ep", {.ep = 4}},
      {"ep and etp without tp", {.ep = 2, .etp = 2}},
      {"ep and etp", {.tp = 2, .ep = 4, .etp = 2, .sequence_parallel = true}},
      {"etp 1 under tp", {.tp = 4, .ep = 8, .etp = 1, .sequence_parallel = true}},
      {"ep and pp", {.tp = 2, .pp = 2, .ep = 2, .etp = 2}},
      {"all", {.tp = 2, .cp = 2, .pp = 2, .ep = 2, .etp = 2, .sequence_parallel = true, .mesh_order = pp_inside}},
  };
}

// dp from the devices, seq 32 where none is given, `micro_batches` of them in the step.
inline PlanRequest request(Transformer model, ClusterSpec cluster, Layout layout, std::int64_t micro_batches = 4) {
  const std::int64_t devices = cluster.nodes * cluster.devices_per_node;
  layout.dp = devices / (layout.tp * layout.cp * layout.pp);
  if (layout.seq == 0) layout.seq = 32;
  layout.global_batch = micro_batches * layout.micro_batch * layout.dp;
  return {std::move(model), std::move(cluster), std::move(layout), default_profile()};
}

inline StepGraph build(const PlanRequest& r) {
  return build_step_graph(r.model, Cluster(r.cluster), r.layout);
}

inline Plan serial(const PlanRequest& r) {
  return make_plan(r, build(r), "serial");
}
inline Plan serial(Transformer model, std::string_view cluster, Layout layout, std::int64_t micro_batches = 4) {
  return serial(request(std::move(model), parse_cluster(cluster), std::move(layout), micro_batches));
}

inline Plan fsdp(PlanRequest r, int prefetch = 1) {
  r.options.prefetch = prefetch;
  return make_plan(r, build(r), "fsdp");
}
inline Plan fsdp(Transformer model, std::string_view cluster, Layout layout, std::int64_t micro_batches = 4,
                 int prefetch = 1) {
  return fsdp(request(std::move(model), parse_cluster(cluster), std::move(layout), micro_batches), prefetch);
}

// The operation that describes itself as `words`, of the class called `stage`.
inline OpId find_op(const StepGraph& graph, std::string_view stage, std::string_view words) {
  for (std::size_t i = 0; i < graph.operations.size(); ++i) {
    const Operation& op = graph.operations[i];
    if (graph.classes[op.rank_class.index()].name == stage && describe(op) == words) return make_id<OpId>(i);
  }
  ADD_FAILURE() << "no operation " << stage << ": " << words;
  return OpId{0};
}

inline ValueId find_value(const StepGraph& graph, std::string_view stage, std::string_view name) {
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    if (graph.classes[value.rank_class.index()].name == stage && value.name == name) return make_id<ValueId>(i);
  }
  ADD_FAILURE() << "no value " << stage << ": " << name;
  return ValueId{0};
}

}  // namespace weft::test
