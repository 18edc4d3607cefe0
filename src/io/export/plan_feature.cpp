#include "io/export/plan_feature.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "graph/own_rows.hpp"
#include "plan/late.hpp"
#include "plan/woven_passes.hpp"

namespace weft {
namespace {

bool is_part(const Operation& op) {
  return std::any_of(op.origins.begin(), op.origins.end(), [](const Origin& origin) { return origin.of > 1; });
}

bool reduces_gradients(const Operation& op) {
  return op.role == Role::grad_reduce || op.role == Role::shard_reduce;
}

bool is_message(const Operation& op) {
  return op.role == Role::stage_input || op.role == Role::stage_output;
}

// The layers between what a gather of parameters waits for and the layer that it gathers for.
int prefetch_of(const Plan& plan) {
  int prefetch = 0;
  for (const Wait& wait : plan.waits) {
    const Operation &gather = plan.graph.op(wait.operation), &until = plan.graph.op(wait.until);
    if (gather.role != Role::param_gather || gather.phase != Phase::forward || wait.executions != 0) continue;
    if (gather.layer >= 0 && until.layer >= 0) prefetch = std::max(prefetch, gather.layer - until.layer - 1);
  }
  return prefetch;
}

class FeatureList {
 public:
  explicit FeatureList(const Plan& plan) : plan_(plan), layout_(plan.layout), facts_(transfer_facts(plan)) {}

  std::vector<PlanFeature> list() {
    add_degrees();
    add_experts();
    add_sharding();
    add_numerics();
    add_overlap();
    add_transfers();
    add_order();
    std::stable_sort(features_.begin(), features_.end(),
                     [](const PlanFeature& a, const PlanFeature& b) { return a.feature < b.feature; });
    return std::move(features_);
  }

 private:
  void add(Feature feature, std::string words) { features_.push_back({feature, std::move(words)}); }
  void add_if(bool condition, Feature feature, std::string words) {
    if (condition) add(feature, std::move(words));
  }

  void add_degrees() {
    const Layout& l = layout_;
    add(Feature::model, fmt::format("the shape of the model ({})", plan_.model.name));
    add(Feature::batches, fmt::format("micro-batches of {}, a global batch of {}, sequences of {}", l.micro_batch,
                                      l.global_batch, l.seq));
    add_if(l.tp > 1, Feature::tensor_parallel, fmt::format("tp {}", l.tp));
    add_if(l.sequence_parallel, Feature::sequence_parallel, "sequence parallelism");
    add_if(l.cp > 1, Feature::context_parallel, fmt::format("cp {}", l.cp));
    add_if(l.dp > 1, Feature::data_parallel, fmt::format("dp {}", l.dp));
    add_if(l.pp > 1, Feature::pipeline, fmt::format("pp {}", l.pp));
    add_if(l.vpp > 1, Feature::model_chunks, fmt::format("vpp {}", l.vpp));
    add_if(l.pp > 1, Feature::schedule,
           fmt::format("the pipeline schedule {}{}", name_of(l.schedule),
                       l.warm_up_depth > 0 ? fmt::format(" with a warm-up {} deep", l.warm_up_depth) : ""));
    add_if(l.pp > 1 && !l.stage_layers.empty(), Feature::stage_layers,
           fmt::format("layers of the model chunks: {}", fmt::join(l.stage_layers, ",")));
    add_if(l.has_slices(), Feature::token_slices,
           fmt::format("sequences in slices of {} tokens", fmt::join(l.slice_tokens, ", ")));
    add_if(l.mesh_order != Layout{}.mesh_order, Feature::mesh_order, "the order of the mesh's axes");
    add_if(!plan_.cluster.device_map.empty(), Feature::device_map, "which rank is on which device");
  }

  void add_experts() {
    const Layout& l = layout_;
    if (!plan_.model.experts) return;
    add_if(l.ep > 1, Feature::expert_parallel, fmt::format("ep {}", l.ep));
    add_if(l.etp > 1 || l.tp > 1, Feature::expert_tensor_parallel, fmt::format("etp {}", l.etp));
    add_if(l.ep > 1, Feature::expert_exchange, fmt::format("tokens travel to experts {}", name_of(l.expert_exchange)));
    add_if(l.dispatch_fp8, Feature::expert_dispatch_fp8, "tokens travel to experts in fp8");
    add_if(l.ep_forwarding, Feature::expert_forwarding, "a token goes to a node once and is handed on inside it");
  }

  void add_sharding() {
    add_if(layout_.zero > 0, Feature::zero, fmt::format("ZeRO stage {}", layout_.zero));
    add_if(layout_.has_shard_groups() && layout_.zero > 0, Feature::zero_shards,
           fmt::format("shards over {} ranks, {} replicas of them", layout_.shards(), layout_.shard_replicas()));
    add_if(layout_.zero_secondary > 0, Feature::zero_secondary,
           fmt::format("backward gathers parameters from {} ranks that keep them", layout_.zero_secondary));
    add_if(layout_.layer_group > 1, Feature::layer_groups,
           fmt::format("{} micro-batches pass a layer before the next one begins", layout_.layer_group));
    add_if(layout_.reduce_every != 0, Feature::reduce_every,
           layout_.reduce_every == Layout::kWholeStep
               ? "gradients reduced once a step"
               : fmt::format("gradients reduced after every {} micro-batches", layout_.reduce_every));
  }

  void add_numerics() {
    const Layout& l = layout_;
    add(Feature::precision, fmt::format("precision {}", name_of(l.precision)));
    add_if(l.products != ProductFormat::stored, Feature::low_precision_products,
           fmt::format("products of layers in {}{}", name_of(l.products),
                       l.fp8_param_gather ? ", their weights gathered in fp8" : ""));
    add(Feature::gradient_type, fmt::format("gradients accumulated and reduced in {}", name_of(l.grad_dtype)));
    add_if(l.compress.is_on(), Feature::gradient_compression,
           fmt::format("gradients of at least {} elements travel as {}", l.compress.min_elements, name_of(l.compress)));
    add_if(l.encodes_weights(), Feature::weight_compression,
           fmt::format("parameters of at least {} elements gathered as {}", l.compress.min_elements,
                       name_of(l.compress_weights)));
    add_if(l.clip_grad > 0, Feature::gradient_clipping, fmt::format("gradients clipped at {}", l.clip_grad));
    add_if(l.kfac_interval > 0, Feature::kfac, fmt::format("K-FAC, refreshed every {} steps", l.kfac_interval));
    add_if(!l.tasks.empty(), Feature::user_tasks, fmt::format("{} tasks of the user", l.tasks.size()));
    add_if(!l.may_wait.empty(), Feature::work_that_waits,
           fmt::format("{} kinds of work that wait for idle time", l.may_wait.size()));
    if (plan_.model.positions == Positions::learned) {
      const DropoutRates& rates = plan_.model.dropout;
      add(Feature::dropout, l.dropout ? fmt::format("dropout ({:g} of embeddings, {:g} of attention, {:g} hidden)",
                                                    rates.embedding, rates.attention, rates.hidden)
                                      : "no dropout");
    }
    add_if(l.recompute != Recompute::none, Feature::recompute, "recompute " + recompute_in_words(l));
    add(Feature::attention_kernel, l.attention == AttentionKernel::flash ? "flash attention" : "unfused attention");
  }

  void add_overlap() {
    std::int64_t reductions = 0;
    for (const Operation& op : plan_.graph.operations) reductions += reduces_gradients(op) && op.leg == 0 ? 1 : 0;
    add_if(reductions > 0, Feature::gradient_buckets,
           fmt::format("the buckets of gradients ({} reductions over all rank classes)", reductions));
    add_if(facts_.reductions_beside_compute, Feature::reductions_beside_compute,
           "reductions of gradients beside compute");
    add_if(facts_.gathers_beside_compute, Feature::gathers_beside_compute, "gathers of parameters beside compute");
    add_if(facts_.messages_beside_compute, Feature::messages_beside_compute, "pipeline messages beside compute");
    add_if(layout_.zero == 3, Feature::prefetch,
           facts_.prefetch == 0 ? "parameters gathered only when they are needed"
                                : fmt::format("parameters of {} {} gathered ahead", facts_.prefetch,
                                              facts_.prefetch == 1 ? "layer" : "layers"));
    add_if(facts_.tensor_parallel_parts, Feature::tensor_parallel_parts,
           "transfers of tensor parallelism in parts with their products");
    add_if(facts_.expert_parts, Feature::expert_parts, "all-to-alls of experts in parts");
    add_if(facts_.woven, Feature::woven_passes, "the passes of two micro-batches are woven into each other");
  }

  void add_transfers() {
    std::int64_t parts = 0, legs = 0, moved = 0;
    std::set<std::string> programs;
    for (const Operation& op : plan_.graph.operations) {
      if (!op.is_transfer()) continue;
      parts += is_part(op) && !op.per_micro_batch ? 1 : 0;
      legs += op.rule != Substitution::none ? 1 : 0;
      moved += op.communication->mover.is_library() ? 0 : 1;
      if (op.communication->collective != Collective::send_recv) {
        programs.emplace(name_of(op.communication->algorithm));
      }
    }
    add_if(parts > 0, Feature::transfer_parts, fmt::format("{} parts that transfers of a step are cut into", parts));
    add_if(legs > 0, Feature::transfer_legs, fmt::format("{} legs, inside nodes and across, of transfers", legs));
    add_if(!programs.empty(), Feature::programs,
           fmt::format("how collectives are carried out: {}", fmt::join(programs, ", ")));
    add_if(plan_.thread_blocks > 0, Feature::thread_blocks,
           fmt::format("{} thread blocks for each collective", plan_.thread_blocks));
    add_if(moved > 0, Feature::movers,
           fmt::format("{} transfers by thread blocks or copy engines of their own", moved));
  }

  void add_order() {
    std::size_t queues = 0;
    for (const ClassPlan& rank_class : plan_.classes) queues = std::max(queues, rank_class.queues.size());
    add_if(queues > 2, Feature::queues, fmt::format("{} queues of a rank", queues));
    add_if(!plan_.waits.empty(), Feature::waits, fmt::format("{} waits", plan_.waits.size()));
    static const std::set<std::string> kAsFrameworks{"serial",        "ddp",           "fsdp",
                                                     "megatron-dist", "megatron-grad", "megatron-param"};
    add_if(!kAsFrameworks.contains(plan_.policy), Feature::operation_order,
           fmt::format("the order of operations that policy {} chose{}", plan_.policy,
                       has_late(plan_) ? ", some of them under the next forward" : ""));
  }

  const Plan& plan_;
  const Layout& layout_;
  TransferFacts facts_;
  std::vector<PlanFeature> features_;
};

}  // namespace

std::vector<PlanFeature> features_of(const Plan& plan) {
  return FeatureList(plan).list();
}

TransferFacts transfer_facts(const Plan& plan) {
  TransferFacts facts;
  for (const OpId id : plan.graph.operations.ids()) {
    const Operation& op = plan.graph.op(id);
    facts.tensor_parallel_parts |= op.origins.size() == 1 && is_own_piece(op.origins.front());
    if (!op.is_transfer()) continue;
    const bool beside = !plan.issues[id].blocking;
    const GroupKind group = op.communication->group;
    facts.reductions_beside_compute |= reduces_gradients(op) && beside;
    facts.gathers_beside_compute |= op.role == Role::param_gather && beside;
    facts.messages_beside_compute |= is_message(op) && beside;
    facts.tensor_parallel_parts |= group == GroupKind::tp && op.per_micro_batch && is_part(op);
    if (group == GroupKind::tp && op.per_micro_batch) {
      for (const Origin& origin : op.origins) {
        facts.tensor_parallel_pieces = std::max(facts.tensor_parallel_pieces, origin.of);
      }
    }
    const bool of_experts = group == GroupKind::ep && op.per_micro_batch;
    facts.expert_parts |= of_experts && is_part(op);
    facts.experts_beside_compute |= of_experts && beside;
  }
  // Sections of a single micro-batch are one order of forward, backward and update, with late operations in it.
  facts.woven = plan.graph.micro_batches > 1 && std::any_of(plan.classes.begin(), plan.classes.end(),
                                                            [](const ClassPlan& c) { return has_woven_passes(c); });
  facts.prefetch = prefetch_of(plan);
  return facts;
}

}  // namespace weft
