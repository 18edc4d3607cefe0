#include "study/plan/framework_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "graph/kfac.hpp"

namespace weft {
namespace {

constexpr std::pair<Role, std::string_view> kComputeWords[] = {
    {Role::embedding, "token embedding"},
    {Role::positions, "position embedding"},
    {Role::embedding_dropout, "embedding dropout"},
    {Role::attention_norm, "input layer norm"},
    {Role::qkv, "QKV projection (ColumnParallelLinear)"},
    {Role::kv, "KV projection (ColumnParallelLinear)"},
    {Role::qk_norm, "QK norm"},
    {Role::query_down, "query down projection (MLA)"},
    {Role::query_norm, "query norm (MLA)"},
    {Role::query_up, "query up projection (MLA)"},
    {Role::kv_down, "KV down projection (MLA)"},
    {Role::kv_norm, "KV norm (MLA)"},
    {Role::kv_up, "KV up projection (MLA)"},
    {Role::attention, "core attention"},
    {Role::attention_out, "attention output projection (RowParallelLinear)"},
    {Role::attention_residual, "attention bias-dropout-add"},
    {Role::ffn_norm, "pre-MLP layer norm"},
    {Role::ffn_in, "MLP fc1 (ColumnParallelLinear)"},
    {Role::ffn_act, "MLP activation"},
    {Role::ffn_out, "MLP fc2 (RowParallelLinear)"},
    {Role::ffn_residual, "MLP bias-dropout-add"},
    {Role::router, "MoE router"},
    {Role::gate, "MoE top-k gate"},
    {Role::dispatch, "MoE token permute"},
    {Role::expert_in, "expert fc1 (grouped GEMM)"},
    {Role::expert_act, "expert activation"},
    {Role::expert_out, "expert fc2 (grouped GEMM)"},
    {Role::combine, "MoE token unpermute"},
    {Role::shared_in, "shared expert fc1"},
    {Role::shared_act, "shared expert activation"},
    {Role::shared_out, "shared expert fc2"},
    {Role::shared_sum, "sum of shared and routed experts"},
    {Role::final_norm, "final layer norm"},
    {Role::head, "output layer (LM head)"},
    {Role::loss, "cross-entropy loss"},
    {Role::grad_encode, "gradient compression (encode)"},
    {Role::grad_merge, "gradient compression (decode and add)"},
    {Role::grad_decode, "gradient compression (decode)"},
    {Role::param_encode, "parameter shard quantisation (qwZ)"},
    {Role::param_decode, "parameter dequantisation (qwZ)"},
    {Role::param_keep, "secondary parameter shard (hpZ)"},
    {Role::grad_norm, "gradient norm (clip_grad_norm)"},
    {Role::curvature, "K-FAC curvature"},
    {Role::inversion, "K-FAC inversion"},
    {Role::precondition, "K-FAC preconditioning"},
    {Role::update, "optimizer step (Adam)"}};

std::string_view compute_words(Role role) {
  const auto found = std::ranges::find(kComputeWords, role, &std::pair<Role, std::string_view>::first);
  return found == std::end(kComputeWords) ? name_of(role) : found->second;
}

// "all-reduce"
std::string hyphened(Collective collective) {
  std::string text(name_of(collective));
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

// Names the scheme that a step's gradients and parameters travel for.
std::string_view sharding_words(const Layout& layout) {
  if (layout.zero == 3) return layout.has_shard_groups() ? "HSDP" : "FSDP";
  return layout.zero == 0 ? "DDP" : layout.zero == 1 ? "distributed optimizer" : "ZeRO-2";
}

std::string pipeline_words(const Operation& op) {
  const bool forward = op.phase == Phase::forward || op.phase == Phase::recompute;
  return fmt::format("pipeline {} ({}_{})", op.communication->sends ? "send" : "receive",
                     op.communication->sends ? "send" : "recv", forward ? "forward" : "backward");
}

// Where a region of tensor parallelism begins (ColumnParallelLinear) and ends (RowParallelLinear).
std::string region_words(const Operation& op, std::string_view where) {
  return fmt::format("TP {} {}", hyphened(op.communication->collective), where);
}

std::string transfer_words(const Operation& op, const Layout& layout) {
  const Communication& c = *op.communication;
  const std::string collective = hyphened(c.collective);
  const char* experts = c.group == GroupKind::edp ? "expert " : "";
  switch (op.role) {
    case Role::grad_reduce:
      return fmt::format("{}gradient {} ({})", experts, collective, sharding_words(layout));
    case Role::shard_reduce:
      if (op.communication->group == GroupKind::tied) {
        return fmt::format("gradient {} between the two directions", collective);
      }
      return fmt::format("gradient shard {} ({})", collective,
                         layout.zero == 1 ? "optimizer instances" : "HSDP replicas");
    case Role::param_gather:
      if (c.group == GroupKind::secondary) return fmt::format("parameter {} (hpZ, secondary shards)", collective);
      return fmt::format("{}parameter {} ({})", experts, collective, sharding_words(layout));
    case Role::replica_reduce:
      return fmt::format("layer-norm gradient {} (TP replicas)", collective);
    case Role::tied_reduce:
      return fmt::format("tied embedding gradient {}", collective);
    case Role::curvature_reduce:
      return fmt::format("K-FAC curvature {}", collective);
    case Role::norm_reduce:
      return fmt::format("gradient-norm {} (clip_grad_norm)", collective);
    case Role::attention_gather:
      return region_words(op, "at QKV (ColumnParallelLinear)");
    case Role::attention_reduce:
      return region_words(op, "at attention proj (RowParallelLinear)");
    case Role::ffn_gather:
      return region_words(op, "at MLP fc1 (ColumnParallelLinear)");
    case Role::ffn_reduce:
      return region_words(op, "at MLP fc2 (RowParallelLinear)");
    case Role::embedding_reduce:
      return region_words(op, "at VocabParallelEmbedding");
    case Role::head_gather:
    case Role::head_reduce:
      return region_words(op, "at output layer (ColumnParallelLinear)");
    case Role::loss_reduce:
      return region_words(op, "at vocab-parallel cross-entropy");
    case Role::kv_gather:
      return fmt::format("KV {} (context parallel)", collective);
    case Role::kv_reduce:
      return fmt::format("KV gradient {} (context parallel)", collective);
    case Role::expert_dispatch:
      return fmt::format("expert {} (dispatch)", collective);
    case Role::expert_combine:
      return fmt::format("expert {} (combine)", collective);
    case Role::expert_gather:
    case Role::expert_reduce:
      if (op.communication->group == GroupKind::ep) return fmt::format("expert {} (allgather dispatcher)", collective);
      return fmt::format("expert TP {}", collective);
    case Role::grad_exchange:
    case Role::grad_gather:
      if (gathers_gradient(op)) return fmt::format("DP {} of gradients for K-FAC", collective);
      return fmt::format("DP {} of encoded gradients", collective);
    case Role::node_reduce:
    case Role::node_gather:
      return fmt::format("DP {} of gradients inside the node", collective);
    case Role::stage_gather:
      return fmt::format("TP {} of pipeline messages", collective);
    case Role::stage_input:
    case Role::stage_output:
      return pipeline_words(op);
    default:
      return fmt::format("{} {}", name_of(op.role), collective);
  }
}

// Operations that happen once a step need no phase, nor do messages whose name says it.
std::string_view phase_words(const Operation& op) {
  if (op.role == Role::stage_input || op.role == Role::stage_output) return "";
  switch (op.phase) {
    case Phase::forward:
      return " fwd";
    case Phase::input_grad:
      return op.is_transfer() ? " bwd" : " dgrad";
    case Phase::weight_grad:
      return op.is_transfer() ? "" : " wgrad";
    case Phase::recompute:
      return " recompute";
    case Phase::optimizer:
      return "";
  }
  return "";
}

}  // namespace

std::string framework_words(const Operation& op, const Layout& layout) {
  return fmt::format("{}{}", op.communication ? transfer_words(op, layout) : compute_words(op.role), phase_words(op));
}

}  // namespace weft
