// A Python file that applies torch.distributed.fsdp.fully_shard as the plan gathers and reduces (docs/export.md).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.hpp"
#include "graph/op_lists.hpp"
#include "io/export/export_writers.hpp"

namespace weft {
namespace {

using LayerGroups = std::vector<std::vector<std::int32_t>>;  // layers that are gathered together

// The layers that read what a gather writes.
std::set<std::int32_t> layers_gathered(const StepGraph& graph, const OpLists& readers, const Operation& gather) {
  std::set<std::int32_t> layers;
  for (const Write& write : gather.writes) {
    for (const OpId reader : readers[write.value.index()]) {
      if (graph.op(reader).layer >= 0) layers.insert(graph.op(reader).layer);
    }
  }
  return layers;
}

// Returns by model chunk, in the order of the model, the groups of its layers; layers count from the chunk's first.
std::map<std::int64_t, LayerGroups> groups_of_chunks(const Plan& plan) {
  const OpLists readers = readers_by_value(plan.graph);
  const std::vector<std::int64_t> layers = layers_per_chunk(plan.layout, plan.model);
  std::map<std::int64_t, std::set<std::vector<std::int32_t>>> groups;
  for (const Operation& op : plan.graph.operations) {
    const bool forward = op.phase == Phase::forward || op.phase == Phase::optimizer;
    if (op.role != Role::param_gather || !forward) continue;
    const std::int64_t chunk = op.chunk * plan.layout.pp + plan.graph.classes[op.rank_class].stage;
    std::int64_t first = 0;
    for (std::int64_t i = 0; i < chunk; ++i) first += layers[static_cast<std::size_t>(i)];
    std::vector<std::int32_t> group;
    for (const std::int32_t layer : layers_gathered(plan.graph, readers, op)) {
      group.push_back(layer - static_cast<std::int32_t>(first));
    }
    if (!group.empty()) groups[chunk].insert(std::move(group));
  }
  std::map<std::int64_t, LayerGroups> sorted;
  for (const auto& [chunk, set] : groups) sorted[chunk] = LayerGroups(set.begin(), set.end());
  return sorted;
}

std::string torch_type(ElementType type) {
  return type == ElementType::bf16 ? "torch.bfloat16" : type == ElementType::fp16 ? "torch.float16" : "torch.float32";
}

constexpr std::string_view kFunctions = R"py(

def layers_of(model):
    """Finds the transformer layers of a model or of a pipeline stage's part of it."""
    for path in ("layers", "model.layers", "transformer.h", "decoder.layers"):
        found = model
        for name in path.split("."):
            found = getattr(found, name, None)
        if found is not None:
            return list(found.values() if hasattr(found, "values") else found)
    raise ValueError("pass the transformer layers: apply(model, layers=[...])")


def apply(model, mesh=None, chunk=0, layers=None, own_groups=()):
    """Shards the model in place: a group for each entry of GROUPS[chunk], one for the rest.

    own_groups: modules such as the embedding, or lists of modules such as final norm and head, with groups of their own.
    """
    layers = layers_of(model) if layers is None else list(layers)
    policy = MixedPrecisionPolicy(param_dtype=PARAM_DTYPE, reduce_dtype=REDUCE_DTYPE)
    options = {"mp_policy": policy} if mesh is None else {"mp_policy": policy, "mesh": mesh}
    groups = [[layers[i] for i in group] for group in GROUPS[chunk]]
    if sum(map(len, groups)) != len(layers):
        raise ValueError(f"the plan has {sum(map(len, groups))} layers here, the model {len(layers)}")
    for group in groups:
        fully_shard(group[0] if len(group) == 1 else group, reshard_after_forward=RESHARD_AFTER_FORWARD, **options)
    for modules in own_groups:
        fully_shard(modules, reshard_after_forward=RESHARD_AFTER_FORWARD, **options)
    fully_shard(model, reshard_after_forward=False, **options)
    for i, group in enumerate(groups):
        later = [module for other in groups[i + 1 : i + 1 + PREFETCH] for module in other]
        if later:
            group[0].set_modules_to_forward_prefetch(later)
        earlier = [module for other in reversed(groups[max(0, i - PREFETCH) : i]) for module in other]
        if earlier:
            group[0].set_modules_to_backward_prefetch(earlier)
    return model


def before_backward(model, micro_batch):
    """ZeRO 2 keeps parameters gathered until the backward of the last micro-batch has ended."""
    if not RESHARD_AFTER_FORWARD:
        model.set_reshard_after_backward(micro_batch + 1 == MICRO_BATCHES))py";

void write_constants(ExportSheet& sheet) {
  const Layout& layout = sheet.layout();
  sheet.line("import torch");
  sheet.line("from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard\n");
  sheet.line(fmt::format("MICRO_BATCHES = {}", layout.micro_batches()));
  sheet.line(fmt::format("MESH = {{\"replicate\": {}, \"shard\": {}}}  # of init_device_mesh", layout.shard_replicas(),
                         layout.shards()));
  const std::string kept = layout.zero_secondary > 0 ? std::to_string(layout.zero_secondary)
                           : layout.zero == 3        ? "True"
                                                     : "False";
  sheet.line(fmt::format("RESHARD_AFTER_FORWARD = {}", kept));
  sheet.line(fmt::format("PREFETCH = {}  # groups gathered ahead", layout.zero == 3 ? sheet.facts().prefetch : 0));
  sheet.line(fmt::format("PARAM_DTYPE = {}", torch_type(layout.precision)));
  sheet.line(fmt::format("REDUCE_DTYPE = {}", torch_type(layout.grad_dtype)));
  sheet.line("# By model chunk in the order of the model: layers of the chunk that are gathered and reduced together.");
  sheet.line("GROUPS = [");
  for (const auto& [chunk, groups] : groups_of_chunks(sheet.plan())) sheet.line(fmt::format("    {},", groups));
  sheet.line("]");
}

}  // namespace

void write_fsdp2_groups(ExportSheet& sheet) {
  const Layout& layout = sheet.layout();
  if (layout.zero < 2) {
    fail("--to fsdp2: the plan has --zero {}; fully_shard is --zero 2 or 3 (--to ddp, --to megatron)", layout.zero);
  }
  write_constants(sheet);
  sheet.line(kFunctions);
  sheet.carries({Feature::data_parallel, Feature::zero, Feature::zero_shards, Feature::zero_secondary,
                 Feature::precision, Feature::gradient_type, Feature::prefetch, Feature::waits, Feature::queues,
                 Feature::reductions_beside_compute, Feature::gathers_beside_compute, Feature::gradient_buckets});
  sheet.warn("the embedding and the head are in the root's group unless apply() gets them as own_groups");
  if (layout.zero == 3 && sheet.facts().prefetch == 0) {
    sheet.leaves_out(Feature::prefetch, "fully_shard issues the next gather early by itself");
  }
  sheet.leaves_out(Feature::batches, fmt::format("the job calls {} micro-batches itself", layout.micro_batches()));
  if (layout.tp > 1 || layout.cp > 1) {
    sheet.warn("fully_shard needs CUDA_DEVICE_MAX_CONNECTIONS above 1 (or unset) for its streams to run side by side");
  }
}

}  // namespace weft
