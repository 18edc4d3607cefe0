// A layer's share is the difference between graphs of one and of two layers, made by the builder of the real graph, so
// it holds for every architecture.
#include "graph/memory_bound.hpp"

#include <algorithm>
#include <vector>

#include "graph/build/class_builder.hpp"

namespace weft {
namespace {

struct Held {
  std::int64_t state = 0;  // bytes
  std::int64_t saved = 0;  // bytes of one micro-batch
};

Held held_by(const StepGraph& graph) {
  std::vector<bool> persists(graph.values.size(), false), of_forward(graph.values.size(), false),
      read_later(graph.values.size(), false);
  for (const Operation& op : graph.operations) {
    for (const Read& read : op.reads) {
      if (read.distance == 1) persists[read.value.index()] = true;
      if (op.phase != Phase::forward) read_later[read.value.index()] = true;
    }
    if (op.phase != Phase::forward) continue;
    for (const Write& write : op.writes) of_forward[write.value.index()] = true;
  }
  Held held;
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    const bool accumulates = value.kind == ValueKind::gradient && value.accumulated && !value.per_micro_batch;
    if (persists[v] || accumulates) held.state += value.bytes().value;
    if (value.per_micro_batch && of_forward[v] && read_later[v]) held.saved += value.bytes().value;
  }
  return held;
}

// Makes the only class of a job without a pipeline. The builder reads only the sizes of its groups.
RankClass lone_class(const Transformer& model, const Layout& layout) {
  RankClass c;
  c.ranks = layout.devices();
  c.groups.resize(group_kinds().size());
  const auto set = [&](GroupKind kind, std::int64_t size) { c.groups[kind.number].view.size = size; };
  set(GroupKind::tp, layout.tp);
  set(GroupKind::cp, layout.cp);
  set(GroupKind::dp, layout.dp * layout.cp);
  set(GroupKind::ep, layout.ep);
  set(GroupKind::etp, layout.etp);
  set(GroupKind::edp, layout.edp());
  set(GroupKind::norm, layout.devices() / layout.shard_replicas());
  set(GroupKind::shard, layout.shards());
  set(GroupKind::replica, layout.shard_replicas());
  set(GroupKind::secondary, layout.zero_secondary);
  set(GroupKind::kv, model_groups(model, layout).key_copies);
  return c;
}

Held probe(Transformer model, const Layout& layout, std::int64_t layers) {
  model.layers = layers;
  StepGraph graph;
  graph.tokens = token_rows(layout);
  graph.tokens.routed = routed_slots(model, layout);
  graph.classes.push_back(lone_class(model, layout));
  TransferTable transfers;
  ClassBuilder(graph, transfers, model, layout, make_id<ClassId>(0)).build();
  return held_by(graph);
}

// One layer of a model all of whose layers are alike, and the same where backward computes it again.
struct HeldOfLayer {
  Held kept, recomputed;
};

Held layer_of(const Transformer& model, const Layout& layout) {
  const Held one = probe(model, layout, 1), two = probe(model, layout, 2);
  return {two.state - one.state, two.saved - one.saved};
}

HeldOfLayer layers_of(const Transformer& model, Layout layout, bool any_kept) {
  HeldOfLayer held;
  held.recomputed = layer_of(model, layout);
  if (!any_kept) return {held.recomputed, held.recomputed};
  layout.recompute = Recompute::none;
  held.kept = layer_of(model, layout);
  return held;
}

// Weights, gradients and optimizer state of one tensor that data-parallel ranks share, as build/state.cpp lays them
// out.
std::int64_t state_of(std::int64_t elements, const Layout& layout) {
  const std::int64_t shard = (elements + layout.shards() - 1) / layout.shards();
  const std::int64_t width = size_of(layout.precision).value;
  return (layout.zero == 3 ? shard : elements) * width +
         (layout.reduces_once_a_step() ? elements : shard) * size_of(layout.grad_dtype).value +
         (layout.zero >= 1 ? shard : elements) * (layout.precision == ElementType::fp32 ? 8 : 12);
}

std::int64_t state_of_ends(const Transformer& model, const Layout& layout, std::int64_t stage) {
  const std::int64_t table = local_vocab(model, layout) * model.hidden;
  std::int64_t state = 0;
  if (stage == 0) {
    state += state_of(table, layout);
    if (model.positions == Positions::learned) state += state_of(model.max_seq * model.hidden, layout);
  }
  if (stage == shape_of(layout).stage_of(layout.chunks() - 1)) {
    state += state_of(model.norm == NormKind::layer_norm ? 2 * model.hidden : model.hidden, layout);
    if (!model.tied_embeddings || !layout.ends_meet()) state += state_of(table, layout);
  }
  return state;
}

}  // namespace

MemoryBound memory_lower_bound(const Transformer& model, const Layout& layout) {
  Layout flat = layout;  // the same shards and micro-batches on a single stage
  flat.pp = flat.vpp = 1;
  flat.schedule = PipelineSchedule::one_f_one_b;
  flat.warm_up_depth = 0;
  flat.stage_layers.clear();
  flat.recompute_layers.clear();  // a layer is looked at with and without
  flat.tasks.clear();             // they hold no memory, and name operations of layers that the probes do not have
  if (layout.has_slices()) {      // which slices the passes in flight belong to is left open
    flat.seq = *std::min_element(layout.slice_tokens.begin(), layout.slice_tokens.end());
    flat.slice_tokens.clear();
  }
  const bool any_kept = !layout.recompute_layers.empty();
  Transformer dense = model;
  dense.experts.reset();
  const HeldOfLayer dense_layer = layers_of(dense, flat, any_kept);
  HeldOfLayer moe_layer;
  if (model.experts) {
    Transformer moe = model;
    moe.experts->dense_first = 0;
    moe.experts->every = 1;
    if (layout.has_slices()) {  // they have no more slots of an expert than rows
      Experts& experts = *moe.experts;
      const double room_for_all = static_cast<double>(experts.count) / static_cast<double>(experts.top_k);
      experts.capacity_factor = std::min(experts.capacity_factor, room_for_all);
    }
    moe_layer = layers_of(moe, flat, any_kept);
  }

  const std::vector<std::int64_t> per_chunk = layers_per_chunk(layout, model);
  const std::vector<bool> recomputed = recomputed_layers(layout, model);
  std::vector<Held> chunks;
  std::int64_t layer = 0;
  for (const std::int64_t count : per_chunk) {
    Held chunk;
    for (const std::int64_t end = layer + count; layer < end; ++layer) {
      const std::int64_t in_model = layer % model.layers;
      const HeldOfLayer& either = model.is_moe_layer(in_model) ? moe_layer : dense_layer;
      const Held& held = recomputed[in_model] ? either.recomputed : either.kept;
      chunk.state += held.state;
      chunk.saved += held.saved;
    }
    chunks.push_back(chunk);
  }
  const PipelineShape shape = shape_of(layout);
  const std::vector<std::int64_t> in_flight = passes_in_flight(layout);
  MemoryBound worst;
  for (std::int64_t stage = 0; stage < layout.pp; ++stage) {
    MemoryBound here{stage, {state_of_ends(model, layout, stage)}, {}};
    std::int64_t smallest = INT64_MAX;  // which chunks the passes in flight belong to is left open
    for (std::int64_t chunk = 0; chunk < layout.vpp; ++chunk) {
      const Held& held = chunks[shape.number_of(stage, chunk)];
      here.state.value += held.state;
      smallest = std::min(smallest, held.saved);
    }
    here.activations.value = smallest * in_flight[stage];
    if (stage == 0 || here.total() > worst.total()) worst = here;
  }
  return worst;
}

}  // namespace weft
