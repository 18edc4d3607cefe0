// The ends of a model chunk: embedding, head and loss, and the boundaries between pipeline stages.
#include <fmt/format.h>

#include "graph/build/class_builder.hpp"

namespace weft {

// Adds one end of a message between chunk `from_chunk` and the next one. The sender's class identifies the pair.
// Tensor-parallel ranks that hold the same tokens send one slice each and the receivers gather them, so the slow links
// between stages carry each byte once (Narayanan et al. 2021, section 4.1).
ValueId ClassBuilder::boundary(Role role, Phase phase, std::int64_t from_chunk, bool sends, ValueId sent) {
  const bool holds_sender = role == Role::stage_output;  // stage_output: this chunk and its successor
  const PipelineShape shape = shape_of(layout_);
  const std::int64_t peer = shape.stage_of(holds_sender ? from_chunk + 1 : from_chunk);
  const bool towards_next = shape.in_waves ? peer > rank_class().stage : holds_sender;
  const GroupKind group = towards_next ? GroupKind::pp_next : GroupKind::pp_prev;
  const ClassGroup& pair = rank_class().group(group);
  const ClassId other = pair.members.front() == id_ ? pair.members.back() : pair.members.front();
  const ClassId holder = holds_sender ? id_ : other;  // of from_chunk
  const std::string name =
      fmt::format("chunk {} {}", global_chunk(chunk_), phase == Phase::forward ? "input" : "output.dx");
  const std::int64_t slices = !layout_.sequence_parallel && stream_tokens() % layout_.tp == 0 ? layout_.tp : 1;
  ValueId result = sent;
  std::vector<Read> reads;
  std::vector<Write> writes;
  std::int64_t elements = 0;
  if (sends) {
    reads.push_back({Operand::payload, sent});
    elements = graph_.value(sent).elements() / slices;
  } else {
    const ValueKind kind = phase == Phase::forward ? ValueKind::activation : ValueKind::activation_grad;
    Sharding sharding = stream_sharding();
    if (slices > 1) split(sharding, 0, Axis::tp);
    result = value({name + (slices > 1 ? ".slice" : ""), {stream_tokens() / slices, model_.hidden}, kind, sharding});
    writes.push_back({Operand::payload, result});
    elements = graph_.value(result).elements();
  }
  Operation& op = transfer(role, phase, Collective::send_recv, group, elements, std::move(reads), std::move(writes));
  op.communication->sends = sends;
  op.communication->transfer = transfers_.id({GroupKind::pp_next, holder.value, Role::stage_output, Role::stage_output,
                                              phase, static_cast<std::int32_t>(from_chunk), turn_});
  return sends || slices == 1 ? result : whole_over_tp(Role::stage_gather, phase, result, name);
}

ValueId ClassBuilder::forward_input(std::int32_t chunk) {
  const std::int64_t before = global_chunk(chunk) - 1;
  const bool is_first = shape_of(layout_).is_first(global_chunk(chunk));
  if (!is_first && is_on_this_stage(before)) return now().chunk_output[chunk - 1];
  if (!is_first) return boundary(Role::stage_input, Phase::forward, before, false, {});
  parameter(Role::embedding);
  Sharding sharding = token_sharding();
  if (in_tp()) sharding.add_partial(Axis::tp);  // each rank has the tokens of its part of the vocabulary
  const ValueId out = value({"embedding", {tokens(), model_.hidden}, ValueKind::activation, sharding});
  OpKey key;
  key.kind = OpKind::gather_rows;
  key.dtype = layout_.precision;
  key.dims = {tokens(), model_.hidden, 0, 0, 0, 0};
  std::vector<Read> reads{use(by_role_.at({-1, Role::embedding}), Phase::forward)};
  if (model_.positions == Positions::learned) {
    // Tensor-parallel ranks hold the same table and see the same gradient.
    reads.push_back(use(parameter(Role::positions), Phase::forward));
    reads.back().operand = Operand::positions;
  }
  add(Role::embedding, Phase::forward, key, std::move(reads), {{Operand::output, out}});
  return drop_out_embedding(to_stream(Role::embedding_reduce, Phase::forward, out, label("embedding_reduced")));
}

ValueId ClassBuilder::drop_out_embedding(ValueId in) {
  if (!has_dropout()) return in;
  const ValueId out = value_like(in, "embedding_dropped", ValueKind::activation);
  now().embedding_mask = value_like(in, "embedding_dropped.mask", ValueKind::activation, 1);
  add(Role::embedding_dropout, Phase::forward,
      elementwise(Phase::forward, graph_.value(in).elements(), 2 * width() + 1), {{Operand::input, in}},
      {{Operand::output, out}, {Operand::kept_elements, now().embedding_mask}});
  return out;
}

void ClassBuilder::backward_input(std::int32_t chunk, ValueId grad) {
  const std::int64_t before = global_chunk(chunk) - 1;
  now().chunk_input_grad[chunk] = grad;
  if (!shape_of(layout_).is_first(global_chunk(chunk))) {
    if (!is_on_this_stage(before)) boundary(Role::stage_input, Phase::input_grad, before, true, grad);
    return;
  }
  const ValueId dropped = residual_backward(Role::embedding_dropout, now().embedding_mask, grad);
  const ValueId full = whole_over_tp(Role::embedding_reduce, Phase::input_grad, dropped, label("embedding_reduce.dy"));
  OpKey key;
  key.kind = OpKind::gather_rows;
  key.dtype = layout_.precision;
  key.dims = {tokens(), model_.hidden, 0, 0, 0, 0};
  weight_grad(by_role_.at({-1, Role::embedding}), key, {{Operand::output_grad, full}});
  if (model_.positions == Positions::learned) {
    weight_grad(by_role_.at({-1, Role::positions}), elementwise(Phase::weight_grad, tokens() * model_.hidden, width()),
                {{Operand::output_grad, full}});
  }
}

void ClassBuilder::forward_output(std::int32_t chunk, ValueId output) {
  now().chunk_output[chunk] = output;
  const std::int64_t next = global_chunk(chunk) + 1;
  if (shape_of(layout_).is_last(next - 1)) {
    forward_head(output);
  } else if (!is_on_this_stage(next)) {
    boundary(Role::stage_output, Phase::forward, next - 1, true, output);
  }
}

ValueId ClassBuilder::backward_output(std::int32_t chunk) {
  const std::int64_t next = global_chunk(chunk) + 1;
  if (shape_of(layout_).is_last(next - 1)) return backward_head();
  if (is_on_this_stage(next)) return now().chunk_input_grad[chunk + 1];
  return boundary(Role::stage_output, Phase::input_grad, next - 1, false, {});
}

void ClassBuilder::forward_head(ValueId input) {
  const std::int64_t h = model_.hidden, vocab = local_vocab(model_, layout_);
  const bool has_embedding = by_role_.contains({-1, Role::embedding});
  parameter(Role::final_norm, replicas_of_split_tokens());
  if (model_.tied_embeddings && has_embedding) {
    by_role_[{-1, Role::head}] = by_role_.at({-1, Role::embedding});
  } else {
    parameter(Role::head);
  }
  now().head.input = input;
  now().head.normed = norm(Role::final_norm, Phase::forward, input, "final_norm");
  now().head.normed_full = whole_over_tp(Role::head_gather, Phase::forward, now().head.normed, label("head_in"));
  now().head.logits = linear(Role::head, Phase::forward, now().head.normed_full, {h, vocab}, "logits");
  OpKey key;
  key.kind = OpKind::cross_entropy;
  key.dtype = layout_.precision;
  key.dims = {tokens(), vocab, 0, 0, 0, 0};
  std::vector<Read> reads{{Operand::input, now().head.logits}};
  if (in_tp()) {
    // Maximum, sum of exponentials and the target's logit of every token, from all vocabulary shards: maxima and sums
    // take one exchange this way.
    const ValueId partial = value({.name = "loss_partial",
                                   .shape = {3, tokens()},
                                   .kind = ValueKind::scalar,
                                   .sharding = {{{0, Axis::tp}}},
                                   .dtype = ElementType::fp32});
    add(Role::loss, Phase::forward, key, {{Operand::input, now().head.logits}}, {{Operand::loss_parts, partial}}).part =
        1;
    reads.push_back({Operand::loss_parts, whole_over_tp(Role::loss_reduce, Phase::forward, partial, "loss_parts")});
    key = elementwise(Phase::forward, tokens() * vocab, 2 * width());
  }
  now().head.probabilities = value(
      {.name = "probabilities", .shape = {tokens(), vocab}, .sharding = head_sharding(), .dtype = ElementType::fp32});
  add(Role::loss, Phase::forward, key, std::move(reads), {{Operand::output, now().head.probabilities}});
}

ValueId ClassBuilder::backward_head() {
  const std::int64_t h = model_.hidden, vocab = local_vocab(model_, layout_);
  const ValueId d_logits = value({"logits.dx", {tokens(), vocab}, ValueKind::activation_grad, head_sharding()});
  add(Role::loss, Phase::input_grad, elementwise(Phase::input_grad, tokens() * vocab, 4 + width()),
      {{Operand::output, now().head.probabilities}}, {{Operand::input_grad, d_logits}});
  const ValueId x = whole_over_tp(Role::head_gather, Phase::weight_grad, now().head.normed, label("head_gather.again"));
  const ValueId partial = linear_input_grad(Role::head, {d_logits}, {h, vocab});
  const ValueId dx = to_stream(Role::head_gather, Phase::input_grad, partial, label("head_gather.dx"));
  linear_weight_grad(Role::head, x, {d_logits}, {h, vocab});
  return norm_backward(Role::final_norm, now().head.input, dx, {});
}

}  // namespace weft
