// Routed experts: router, gate, dispatch, all-to-all, expert products, all-to-all, combine. Loads are taken as
// balanced; a capacity factor pads every expert's share.
//
// The gate makes two values of the router's scores. `routing` [tokens, 2 top_k] holds for each choice of a token its
// slot among experts x capacity (expert * capacity + position; -1 - expert where it was dropped) and its weight.
// `expert_load` [2, experts] holds how many choices fell on each expert and the sum of its probabilities, all the
// balance loss needs. Both are fp32 whatever the model computes in: a slot is a whole number up to 2^24.
#include <algorithm>

#include "graph/build/class_builder.hpp"

namespace weft {

// What travels to experts: rows of `hidden` in the layout's precision, or in fp8.
ValueId ClassBuilder::bound_for_experts(const char* name, ValueKind kind) {
  NewValue spec{label(name), {routed_rows(), model_.hidden}, kind, slot_sharding()};
  if (layout_.dispatch_fp8 && layout_.experts_exchange_slots()) {
    spec.dtype = kDispatchFp8.type;
    spec.scale_block = kDispatchFp8.block;
  }
  return value(std::move(spec));
}

std::int64_t ClassBuilder::routed_rows() const {
  return graph_.tokens.slots_of(turn_);
}

// Expert-parallel exchange keeps the total (balanced); expert tensor parallelism gathers it where tokens are split.
std::int64_t ClassBuilder::expert_rows() const {
  return routed_rows() * (layout_.experts_gather_tokens() ? layout_.etp : 1);
}

OpKey ClassBuilder::gate_key(Phase phase) const {
  OpKey key;
  key.kind = OpKind::gate;
  key.phase = phase;
  key.dtype = layout_.precision;
  key.dims = {stream_tokens(), model_.experts->count, model_.experts->top_k, 0, 0, 0};
  return key;
}

// `tokens` is the number of token rows that are written, where these may be more than their copies in slots.
OpKey ClassBuilder::permute_key(std::int64_t tokens) const {
  OpKey key;
  key.kind = OpKind::gather_rows;
  key.dtype = layout_.precision;
  key.dims = {std::max(routed_rows(), tokens), model_.hidden, 0, 0, 0, 0};
  return key;
}

void ClassBuilder::forward_gate(LayerValues& v, Phase phase) {
  const Experts& experts = *model_.experts;
  v.scores = linear(Role::router, phase, v.ffn_normed, {model_.hidden, experts.count}, "router_scores");
  const auto in_fp32 = [&](const char* name, std::vector<std::int64_t> shape, const Sharding& sharding) {
    return value({label(name), std::move(shape), ValueKind::activation, sharding, 0, ElementType::fp32});
  };
  v.routing = in_fp32("routing", {stream_tokens(), 2 * experts.top_k}, stream_sharding());
  v.expert_load = in_fp32("expert_load", {2, experts.count}, {});
  std::vector<Read> reads{{Operand::input, v.scores}};
  if (has_earlier_slice()) reads.push_back({Operand::loads, saved_by(turn_ - 1).expert_load});
  add(Role::gate, phase, gate_key(phase), std::move(reads),
      {{Operand::routing, v.routing}, {Operand::loads, v.expert_load}});
}

// The loads of a whole micro-batch: the gates of slices go on where those before them ended, so the last one has them.
ValueId ClassBuilder::loads_of_all_tokens(const LayerValues& v) const {
  return layout_.has_slices() ? saved_by(static_cast<std::int32_t>(layout_.slices()) - 1).expert_load : v.expert_load;
}

void ClassBuilder::expert_activations(LayerValues& v, Phase phase) {
  const Experts& experts = *model_.experts;
  const std::int64_t gates = model_.activation == Activation::swiglu ? 2 : 1;
  const std::int64_t local = experts.count / layout_.ep, ffn = experts.ffn / layout_.etp;
  const std::int64_t rows = expert_rows(), per_expert = rows / local;
  Sharding inner;
  split(inner, 1, Axis::etp);
  v.expert_hidden = value({label("expert_hidden"), {rows, gates * ffn}, ValueKind::activation, inner});
  add(Role::expert_in, phase, gemm(phase, per_expert, gates * ffn, model_.hidden, local),
      {{Operand::input, v.expert_input}, use(by_role_.at({layer_, Role::expert_in}), phase)},
      {{Operand::output, v.expert_hidden}});
  v.expert_activated = value({label("expert_activated"), {rows, ffn}, ValueKind::activation, inner});
  add(Role::expert_act, phase, elementwise(phase, rows * ffn, (gates + 1) * width()),
      {{Operand::input, v.expert_hidden}}, {{Operand::output, v.expert_activated}});
}

// Recomputes only between the all-to-alls, whose results were kept, so nothing travels again.
void ClassBuilder::recompute_experts(LayerValues& v, const LayerValues& saved) {
  forward_gate(v, Phase::recompute);
  v.expert_input = saved.expert_input;
  v.expert_output = saved.expert_output;
  expert_activations(v, Phase::recompute);
}

ValueId ClassBuilder::forward_experts(LayerValues& v, Phase phase) {
  const Experts& experts = *model_.experts;
  const std::int64_t h = model_.hidden;
  const std::int64_t local = experts.count / layout_.ep, ffn = experts.ffn / layout_.etp;
  const std::int64_t rows = expert_rows(), per_expert = rows / local;

  forward_gate(v, phase);
  const ValueId tokens = gather_tokens(Role::expert_gather, phase, v.ffn_normed, "all_tokens");
  const ValueId sent = bound_for_experts("dispatched", ValueKind::activation);
  add(Role::dispatch, phase, permute_key(), {{Operand::input, tokens}, {Operand::routing, v.routing}},
      {{Operand::output, sent}});

  ValueId received = sent;
  if (layout_.experts_exchange_slots()) {
    received = collective(Role::expert_dispatch, phase, Collective::all_to_all, GroupKind::ep, sent, label("received"));
  }
  v.expert_input = reshard(Role::expert_gather, phase, received, Axis::etp, std::nullopt, label("expert_rows"));
  expert_activations(v, phase);
  Sharding partial;
  if (layout_.etp > 1) partial.add_partial(Axis::etp);
  ValueId out = value({label("expert_out"), {rows, h}, ValueKind::activation, partial});
  add(Role::expert_out, phase, gemm(phase, per_expert, h, ffn, local),
      {{Operand::input, v.expert_activated}, use(by_role_.at({layer_, Role::expert_out}), phase)},
      {{Operand::output, out}});
  const std::optional<Share> rows_of_slots = slot_sharding().rows_over(Axis::etp);
  out = reshard(Role::expert_reduce, phase, out, Axis::etp, rows_of_slots, label("expert_reduced"));
  if (layout_.experts_exchange_slots()) {
    out = collective(Role::expert_combine, phase, Collective::all_to_all, GroupKind::ep, out, label("returned"));
  }
  v.expert_output = out;
  const ValueId combined =
      value({label("combined"), {dispatched_tokens(), h}, ValueKind::activation, stream_sharding()});
  add(Role::combine, phase, permute_key(gathers_all_tokens() ? dispatched_tokens() : 0),
      {{Operand::input, out}, {Operand::routing, v.routing}}, {{Operand::output, combined}});
  return sum_of_tokens(Role::expert_reduce, phase, combined, "combined_sum");
}

bool ClassBuilder::gathers_all_tokens() const {
  return layout_.ep > 1 && layout_.expert_exchange == ExpertExchange::gathered;
}

// Rows that dispatch reads and combine writes: one for every token of this rank, or of all expert-parallel ranks.
// (Where these are gathered, the choices of their tokens travel too: a few numbers per row of `hidden`, which are not
// counted.)
std::int64_t ClassBuilder::dispatched_tokens() const {
  return stream_tokens() * (gathers_all_tokens() ? layout_.ep : 1);
}

ValueId ClassBuilder::gather_tokens(Role role, Phase phase, ValueId tokens, const char* name) {
  if (!gathers_all_tokens()) return tokens;
  return collective(role, phase, Collective::all_gather, GroupKind::ep, tokens, label(name));
}

ValueId ClassBuilder::sum_of_tokens(Role role, Phase phase, ValueId partial, const char* name) {
  if (!gathers_all_tokens()) return partial;
  return collective(role, phase, Collective::reduce_scatter, GroupKind::ep, partial, label(name));
}

// Returns the gradient of the rows that experts received, given that of the rows that they returned.
ValueId ClassBuilder::backward_expert_products(const LayerValues& v, ValueId d_out) {
  constexpr Phase kDx = Phase::input_grad;
  const std::int64_t h = model_.hidden, gates = model_.activation == Activation::swiglu ? 2 : 1;
  const std::int64_t local = model_.experts->count / layout_.ep, ffn = model_.experts->ffn / layout_.etp;
  const std::int64_t rows = expert_rows(), per_expert = rows / local;
  Sharding inner, partial;
  split(inner, 1, Axis::etp);
  if (layout_.etp > 1) partial.add_partial(Axis::etp);
  const auto grad_value = [&](const char* name, std::int64_t columns, const Sharding& sharding) {
    return value({label(name), {rows, columns}, ValueKind::activation_grad, sharding});
  };
  const ParameterIndex out_weight = by_role_.at({layer_, Role::expert_out});
  const ValueId d_activated = grad_value("expert_activated.dx", ffn, inner);
  add(Role::expert_out, kDx, gemm(kDx, per_expert, ffn, h, local),
      {{Operand::output_grad, d_out}, use(out_weight, kDx)}, {{Operand::input_grad, d_activated}});
  weight_grad(out_weight, gemm(Phase::weight_grad, ffn, h, per_expert, local),
              {{Operand::input, v.expert_activated}, {Operand::output_grad, d_out}});
  const ValueId d_hidden = grad_value("expert_hidden.dx", gates * ffn, inner);
  add(Role::expert_act, kDx, elementwise(kDx, rows * ffn, (2 * gates + 1) * width()),
      {{Operand::output_grad, d_activated}, {Operand::input, v.expert_hidden}}, {{Operand::input_grad, d_hidden}});
  const ParameterIndex in_weight = by_role_.at({layer_, Role::expert_in});
  const ValueId dx = grad_value("expert_in.dx", h, partial);
  add(Role::expert_in, kDx, gemm(kDx, per_expert, h, gates * ffn, local),
      {{Operand::output_grad, d_hidden}, use(in_weight, kDx)}, {{Operand::input_grad, dx}});
  weight_grad(in_weight, gemm(Phase::weight_grad, h, gates * ffn, per_expert, local),
              {{Operand::input, v.expert_input}, {Operand::output_grad, d_hidden}});
  return dx;
}

ValueId ClassBuilder::backward_experts(const LayerValues& v, ValueId grad) {
  const Experts& experts = *model_.experts;
  const std::int64_t h = model_.hidden;
  const auto grad_value = [&](const char* name, std::int64_t rows, std::int64_t columns) {
    return value({label(name), {rows, columns}, ValueKind::activation_grad, stream_sharding()});
  };
  constexpr Phase kDx = Phase::input_grad;

  ValueId d_out = bound_for_experts("returned.dx", ValueKind::activation_grad);
  const ValueId d_weights = value({label("gate_weights.dx"),
                                   {stream_tokens(), experts.top_k},
                                   ValueKind::activation_grad,
                                   stream_sharding(),
                                   0,
                                   ElementType::fp32});
  const ValueId grads = gather_tokens(Role::expert_reduce, kDx, grad, "combined.dy");
  add(Role::combine, kDx, permute_key(),
      {{Operand::output_grad, grads}, {Operand::input, v.expert_output}, {Operand::routing, v.routing}},
      {{Operand::input_grad, d_out}, {Operand::routing_grad, d_weights}});
  if (layout_.experts_exchange_slots()) {
    d_out = collective(Role::expert_combine, kDx, Collective::all_to_all, GroupKind::ep, d_out, label("expert_out.dx"));
  }
  d_out = reshard(Role::expert_reduce, kDx, d_out, Axis::etp, std::nullopt, label("expert_out.dy"));
  ValueId dx = backward_expert_products(v, d_out);
  dx = reshard(Role::expert_gather, kDx, dx, Axis::etp, slot_sharding().rows_over(Axis::etp), label("expert_rows.dx"));
  if (layout_.experts_exchange_slots()) {
    dx = collective(Role::expert_dispatch, kDx, Collective::all_to_all, GroupKind::ep, dx, label("dispatched.dx"));
  }
  const ValueId of_all = grad_value("dispatch.dx", dispatched_tokens(), h);
  add(Role::dispatch, kDx, permute_key(gathers_all_tokens() ? dispatched_tokens() : 0),
      {{Operand::output_grad, dx}, {Operand::routing, v.routing}}, {{Operand::input_grad, of_all}});
  const ValueId d_tokens = sum_of_tokens(Role::expert_gather, kDx, of_all, "all_tokens.dx");
  // The balance loss enters here: its gradient needs the loads of the whole micro-batch.
  const ValueId d_scores = grad_value("router_scores.dx", stream_tokens(), experts.count);
  add(Role::gate, kDx, gate_key(kDx),
      {{Operand::routing_grad, d_weights},
       {Operand::input, v.scores},
       {Operand::routing, v.routing},
       {Operand::loads, loads_of_all_tokens(v)}},
      {{Operand::input_grad, d_scores}});
  // The router's dX is added onto the tokens' gradient by the same product.
  return linear_backward(Role::router, v.ffn_normed, {d_scores}, {h, experts.count}, d_tokens);
}

}  // namespace weft
