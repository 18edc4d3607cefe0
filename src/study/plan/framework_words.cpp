#include "study/plan/framework_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace weft {
namespace {

std::string_view compute_words(Role role) {
  switch (role) {
    case Role::embedding:
      return "token embedding";
    case Role::positions:
      return "position embedding";
    case Role::embedding_dropout:
      return "embedding dropout";
    case Role::attention_norm:
      return "input layer norm";
    case Role::qkv:
      return "QKV projection (ColumnParallelLinear)";
    case Role::kv:
      return "KV projection (ColumnParallelLinear)";
    case Role::qk_norm:
      return "QK norm";
    case Role::query_down:
      return "query down projection (MLA)";
    case Role::query_norm:
      return "query norm (MLA)";
    case Role::query_up:
      return "query up projection (MLA)";
    case Role::kv_down:
      return "KV down projection (MLA)";
    case Role::kv_norm:
      return "KV norm (MLA)";
    case Role::kv_up:
      return "KV up projection (MLA)";
    case Role::attention:
      return "core attention";
    case Role::attention_out:
      return "attention output projection (RowParallelLinear)";
    case Role::attention_residual:
      return "attention bias-dropout-add";
    case Role::ffn_norm:
      return "pre-MLP layer norm";
    case Role::ffn_in:
      return "MLP fc1 (ColumnParallelLinear)";
    case Role::ffn_act:
      return "MLP activation";
    case Role::ffn_out:
      return "MLP fc2 (RowParallelLinear)";
    case Role::ffn_residual:
      return "MLP bias-dropout-add";
    case Role::router:
      return "MoE router";
    case Role::gate:
      return "MoE top-k gate";
    case Role::dispatch:
      return "MoE token permute";
    case Role::expert_in:
      return "expert fc1 (grouped GEMM)";
    case Role::expert_act:
      return "expert activation";
    case Role::expert_out:
      return "expert fc2 (grouped GEMM)";
    case Role::combine:
      return "MoE token unpermute";
    case Role::shared_in:
      return "shared expert fc1";
    case Role::shared_act:
      return "shared expert activation";
    case Role::shared_out:
      return "shared expert fc2";
    case Role::shared_sum:
      return "sum of shared and routed experts";
    case Role::final_norm:
      return "final layer norm";
    case Role::head:
      return "output layer (LM head)";
    case Role::loss:
      return "cross-entropy loss";
    case Role::grad_norm:
      return "gradient norm (clip_grad_norm)";
    case Role::update:
      return "optimizer step (Adam)";
    default:
      return name_of(role);
  }
}

// "all-reduce"
std::string hyphened(Collective collective) {
  std::string text(name_of(collective));
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

// Whose the traffic of a step's gradients and parameters is.
std::string_view sharding_words(const Layout& layout) {
  return layout.zero == 0 ? "DDP" : layout.zero == 1 ? "distributed optimizer" : layout.zero == 2 ? "ZeRO-2" : "FSDP";
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
    case Role::param_gather:
      return fmt::format("{}parameter {} ({})", experts, collective, sharding_words(layout));
    case Role::replica_reduce:
      return fmt::format("layer-norm gradient {} (TP replicas)", collective);
    case Role::tied_reduce:
      return fmt::format("tied embedding gradient {}", collective);
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
    case Role::stage_gather:
      return fmt::format("TP {} of pipeline messages", collective);
    case Role::stage_input:
    case Role::stage_output:
      return pipeline_words(op);
    default:
      return fmt::format("{} {}", name_of(op.role), collective);
  }
}

// What happens once a step, and messages whose name says it, need no phase.
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
