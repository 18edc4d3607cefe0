// The feed-forward half of a layer: dense, or experts (with shared experts beside them).
#include "graph/build/class_builder.hpp"

namespace weft {

// Where tokens are split, replicated weights see only those of one rank.
std::optional<GroupKind> ClassBuilder::replicas_of_split_tokens() const {
  return layout_.sequence_parallel ? std::optional(GroupKind::tp) : std::nullopt;
}

void ClassBuilder::declare_layer(std::int32_t layer) {
  const std::optional<GroupKind> split_tokens = replicas_of_split_tokens();
  // Weights that are whole on every tensor-parallel rank; each rank's heads add to their gradient.
  const std::optional<GroupKind> split_heads = in_tp() ? std::optional(GroupKind::tp) : std::nullopt;
  parameter(Role::attention_norm, split_tokens);
  if (model_.latent) {
    if (model_.latent->q_rank > 0) {
      parameter(Role::query_down, split_heads);
      parameter(Role::query_norm, split_heads);
    }
    parameter(Role::query_up);
    parameter(Role::kv_down, split_heads);
    parameter(Role::kv_norm, split_heads);
    parameter(Role::kv_up);
  } else {
    parameter(Role::qkv);
    // Each rank's heads add to the gradients of the keys and values that they share.
    if (keys_are_copied()) parameter(Role::kv, GroupKind::kv);
    if (model_.qk_norm) parameter(Role::qk_norm, split_heads);
  }
  parameter(Role::attention_out);
  parameter(Role::ffn_norm, split_tokens);
  if (!model_.is_moe_layer(layer)) {
    parameter(Role::ffn_in);
    parameter(Role::ffn_out);
    return;
  }
  parameter(Role::router, split_tokens);
  parameter(Role::expert_in);
  parameter(Role::expert_out);
  if (model_.experts->shared_ffn > 0) {
    parameter(Role::shared_in);
    parameter(Role::shared_out);
  }
}

void ClassBuilder::forward_ffn(LayerValues& v, Phase phase) {
  v.ffn_normed = norm(Role::ffn_norm, phase, v.middle, "ffn_norm");
  const bool moe = model_.is_moe_layer(layer_);
  const bool mlp = !moe || model_.experts->shared_ffn > 0;
  ValueId branch;
  if (mlp) branch = forward_mlp(v, phase, moe);
  if (moe) {
    const ValueId routed = forward_experts(v, phase);
    if (!mlp) {
      branch = routed;
    } else {
      const ValueId sum = value_like(routed, label("ffn_sum"), graph_.value(routed).kind);
      const std::int64_t elements = graph_.value(routed).elements();
      add(Role::shared_sum, phase, elementwise(phase, elements, 3 * width()),
          {{Operand::input, branch}, {Operand::addend, routed}}, {{Operand::output, sum}});
      branch = sum;
    }
  }
  v.output = residual(Role::ffn_residual, phase, branch, v.middle, &v.ffn_mask, "output");
}

ValueId ClassBuilder::backward_ffn(const LayerValues& v, ValueId grad) {
  const ValueId branch = residual_backward(Role::ffn_residual, v.ffn_mask, grad);
  const bool moe = model_.is_moe_layer(layer_);
  const bool mlp = !moe || model_.experts->shared_ffn > 0;
  ValueId dx;
  if (mlp) dx = backward_mlp(v, branch, moe);
  if (moe) {
    const ValueId routed = backward_experts(v, branch);
    if (!mlp) {
      dx = routed;
    } else {
      const ValueId sum = value_like(routed, label("ffn_sum.dx"), graph_.value(routed).kind);
      const std::int64_t elements = graph_.value(routed).elements();
      add(Role::shared_sum, Phase::input_grad, elementwise(Phase::input_grad, elements, 3 * width()),
          {{Operand::output_grad, dx}, {Operand::addend_grad, routed}}, {{Operand::input_grad, sum}});
      dx = sum;
    }
  }
  return norm_backward(Role::ffn_norm, v.middle, dx, grad);
}

// The dense feed-forward, or the shared experts of an MoE layer: the same region with other sizes.
ValueId ClassBuilder::forward_mlp(LayerValues& v, Phase phase, bool shared) {
  const std::int64_t gates = model_.activation == Activation::swiglu ? 2 : 1;
  const std::int64_t ffn = (shared ? model_.experts->shared_ffn : model_.ffn) / layout_.tp;
  v.ffn_normed_full = whole_over_tp(Role::ffn_gather, phase, v.ffn_normed, label("ffn_in_full"));
  v.ffn_hidden = linear(shared ? Role::shared_in : Role::ffn_in, phase, v.ffn_normed_full, {model_.hidden, gates * ffn},
                        "ffn_hidden");
  v.ffn_activated =
      value({label("ffn_activated"), {tokens(), ffn}, ValueKind::activation, head_sharding(), kept_input_bytes()});
  add(shared ? Role::shared_act : Role::ffn_act, phase, elementwise(phase, tokens() * ffn, (gates + 1) * width()),
      {{Operand::input, v.ffn_hidden}}, {{Operand::output, v.ffn_activated}});
  const ValueId partial =
      linear(shared ? Role::shared_out : Role::ffn_out, phase, v.ffn_activated, {ffn, model_.hidden}, "ffn_out");
  return to_stream(Role::ffn_reduce, phase, partial, label("ffn_reduced"));
}

ValueId ClassBuilder::backward_mlp(const LayerValues& v, ValueId grad, bool shared) {
  const std::int64_t gates = model_.activation == Activation::swiglu ? 2 : 1;
  const std::int64_t ffn = (shared ? model_.experts->shared_ffn : model_.ffn) / layout_.tp;
  const ValueId dy = whole_over_tp(Role::ffn_reduce, Phase::input_grad, grad, label("ffn_reduce.dy"));
  const ValueId d_activated =
      linear_backward(shared ? Role::shared_out : Role::ffn_out, v.ffn_activated, {dy}, {ffn, model_.hidden});
  const ValueId d_hidden =
      value({label("ffn_hidden.dx"), {tokens(), gates * ffn}, ValueKind::activation_grad, head_sharding()});
  add(shared ? Role::shared_act : Role::ffn_act, Phase::input_grad,
      elementwise(Phase::input_grad, tokens() * ffn, (2 * gates + 1) * width()),
      {{Operand::output_grad, d_activated}, {Operand::input, v.ffn_hidden}}, {{Operand::input_grad, d_hidden}});
  const Role in = shared ? Role::shared_in : Role::ffn_in;
  const ValueId x = whole_over_tp(Role::ffn_gather, Phase::weight_grad, v.ffn_normed, label("ffn_gather.again"));
  const ValueId partial = linear_input_grad(in, {d_hidden}, {model_.hidden, gates * ffn});
  const ValueId dx = to_stream(Role::ffn_gather, Phase::input_grad, partial, label("ffn_gather.dx"));
  linear_weight_grad(in, x, {d_hidden}, {model_.hidden, gates * ffn});
  return dx;
}

}  // namespace weft
