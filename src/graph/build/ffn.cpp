// The feed-forward half of a layer: dense, or experts (with shared experts beside them).
#include "graph/build/class_builder.hpp"

namespace weft {

void ClassBuilder::declare_layer(std::int32_t layer) {
  const std::int64_t h = model_.hidden;
  const std::int64_t norm_size = model_.norm == NormKind::layer_norm ? 2 * h : h;
  const bool bias = model_.linear_bias;
  const bool split_tokens = layout_.sequence_parallel;  // replicated weights then see different tokens
  parameter(Role::attention_norm, norm_size, GroupKind::dp, split_tokens);
  if (model_.latent) {
    const LatentAttention& latent = *model_.latent;
    // The low-rank projections are whole on every tensor-parallel rank, their gradients partial sums.
    if (latent.q_rank > 0) {
      parameter(Role::query_down, h * latent.q_rank, GroupKind::dp, in_tp());
      parameter(Role::query_norm, latent.q_rank, GroupKind::dp, in_tp());
    }
    parameter(Role::query_up, (latent.q_rank > 0 ? latent.q_rank : h) * qkv_width());
    parameter(Role::kv_down, h * (latent.kv_rank + latent.rope_head_dim), GroupKind::dp, in_tp());
    parameter(Role::kv_norm, latent.kv_rank, GroupKind::dp, in_tp());
    parameter(Role::kv_up, latent.kv_rank * kv_width());
  } else {
    const std::int64_t inputs = h + (bias || model_.qkv_bias ? 1 : 0);
    if (keys_are_copied()) {
      parameter(Role::qkv, inputs * heads() * query_head());
      // Each rank's heads add to the gradients of the keys and values that they share.
      parameters_[parameter(Role::kv, inputs * kv_width(), GroupKind::dp, true)].replicas = GroupKind::kv;
    } else {
      parameter(Role::qkv, inputs * qkv_width());
    }
    // Whole on every tensor-parallel rank, whose heads each add to its gradient.
    if (model_.qk_norm) parameter(Role::qk_norm, 2 * model_.head_dim, GroupKind::dp, in_tp());
  }
  parameter(Role::attention_out, heads() * value_head() * h + (bias ? h : 0));
  parameter(Role::ffn_norm, norm_size, GroupKind::dp, split_tokens);

  const std::int64_t gates = model_.activation == Activation::swiglu ? 2 : 1;
  if (!model_.is_moe_layer(layer)) {
    const std::int64_t ffn = model_.ffn / layout_.tp;
    parameter(Role::ffn_in, h * gates * ffn + (bias ? gates * ffn : 0));
    parameter(Role::ffn_out, ffn * h + (bias ? h : 0));
    return;
  }
  const Experts& experts = *model_.experts;
  const std::int64_t local = experts.count / layout_.ep;
  const std::int64_t ffn = experts.ffn / layout_.etp;
  parameter(Role::router, h * experts.count + (experts.gate_bias ? experts.count : 0), GroupKind::dp, split_tokens);
  parameter(Role::expert_in, local * (h * gates * ffn + (bias ? gates * ffn : 0)), GroupKind::edp);
  parameter(Role::expert_out, local * (ffn * h + (bias ? h : 0)), GroupKind::edp);
  if (experts.shared_ffn > 0) {
    const std::int64_t shared = experts.shared_ffn / layout_.tp;
    parameter(Role::shared_in, h * gates * shared + (bias ? gates * shared : 0) + (experts.shared_gate ? h : 0));
    parameter(Role::shared_out, shared * h + (bias ? h : 0));
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
  v.ffn_normed_full = enter_region(Role::ffn_gather, phase, v.ffn_normed, "ffn_in_full");
  v.ffn_hidden = linear(shared ? Role::shared_in : Role::ffn_in, phase, v.ffn_normed_full, {model_.hidden, gates * ffn},
                        "ffn_hidden");
  v.ffn_activated = value({label("ffn_activated"), {tokens(), ffn}});
  add(shared ? Role::shared_act : Role::ffn_act, phase, elementwise(phase, tokens() * ffn, (gates + 1) * width()),
      {{Operand::input, v.ffn_hidden}}, {{Operand::output, v.ffn_activated}});
  const ValueId partial =
      linear(shared ? Role::shared_out : Role::ffn_out, phase, v.ffn_activated, {ffn, model_.hidden}, "ffn_out");
  return leave_region(Role::ffn_reduce, phase, partial, "ffn_reduced");
}

ValueId ClassBuilder::backward_mlp(const LayerValues& v, ValueId grad, bool shared) {
  const std::int64_t gates = model_.activation == Activation::swiglu ? 2 : 1;
  const std::int64_t ffn = (shared ? model_.experts->shared_ffn : model_.ffn) / layout_.tp;
  const ValueId dy = leave_region_backward(Role::ffn_reduce, grad);
  const ValueId d_activated =
      linear_backward(shared ? Role::shared_out : Role::ffn_out, v.ffn_activated, {dy}, {ffn, model_.hidden});
  const ValueId d_hidden = value({label("ffn_hidden.dx"), {tokens(), gates * ffn}, ValueKind::activation_grad, {}, 0});
  add(shared ? Role::shared_act : Role::ffn_act, Phase::input_grad,
      elementwise(Phase::input_grad, tokens() * ffn, (2 * gates + 1) * width()),
      {{Operand::output_grad, d_activated}, {Operand::input, v.ffn_hidden}}, {{Operand::input_grad, d_hidden}});
  const Role in = shared ? Role::shared_in : Role::ffn_in;
  const ValueId x = regather(Role::ffn_gather, v.ffn_normed);
  const ValueId partial = linear_input_grad(in, {d_hidden}, {model_.hidden, gates * ffn});
  const ValueId dx = enter_region_backward(Role::ffn_gather, partial);
  linear_weight_grad(in, x, {d_hidden}, {model_.hidden, gates * ffn});
  return dx;
}

}  // namespace weft
