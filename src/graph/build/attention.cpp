// Attention: norm, projections (plain, grouped or latent), the core, the output projection.
#include "graph/build/class_builder.hpp"

namespace weft {

std::int64_t ClassBuilder::query_head() const {
  return model_.latent ? model_.latent->nope_head_dim + model_.latent->rope_head_dim : model_.head_dim;
}

std::int64_t ClassBuilder::value_head() const {
  return model_.latent ? model_.latent->value_head_dim : model_.head_dim;
}

// Columns of the packed queries, keys and values; under latent attention, of the queries alone.
std::int64_t ClassBuilder::qkv_width() const {
  return model_.latent ? heads() * query_head() : (heads() + 2 * kv_heads()) * model_.head_dim;
}

// Columns of keys and values together, as context-parallel ranks exchange them.
std::int64_t ClassBuilder::kv_width() const {
  return model_.latent ? heads() * (model_.latent->nope_head_dim + value_head()) : 2 * kv_heads() * model_.head_dim;
}

void ClassBuilder::forward_queries(LayerValues& v, Phase phase) {
  if (keys_are_copied()) {
    v.qkv = linear(Role::qkv, phase, v.normed_full, {model_.hidden, heads() * query_head()}, "queries");
    v.kv = linear(Role::kv, phase, v.normed_full, {model_.hidden, kv_width()}, "kv");
    return;
  }
  if (!model_.latent && !shares_keys()) {
    v.qkv = linear(Role::qkv, phase, v.normed_full, {model_.hidden, qkv_width()}, "qkv");
    return;
  }
  if (!model_.latent) {
    // One product; keys and values lie apart, because they are what other ranks or slices read.
    const Sharding sharding = output_sharding(Role::qkv, v.normed_full);
    v.qkv = value({label("queries"), {tokens(), heads() * query_head()}, ValueKind::activation, sharding});
    v.kv = value({label("kv"), {tokens(), kv_width()}, ValueKind::activation, sharding});
    const Read weight = use(by_role_.at({layer_, Role::qkv}), phase);
    add(Role::qkv, phase, gemm(phase, tokens(), qkv_width(), model_.hidden), {{Operand::input, v.normed_full}, weight},
        {{Operand::output, v.qkv}, {Operand::output_beside, v.kv}});
    return;
  }
  const LatentAttention& latent = *model_.latent;
  if (latent.q_rank > 0) {
    v.query_latent = linear(Role::query_down, phase, v.normed_full, {model_.hidden, latent.q_rank}, "query_latent");
    v.query_normed = norm(Role::query_norm, phase, v.query_latent, "query_normed");
    v.qkv = linear(Role::query_up, phase, v.query_normed, {latent.q_rank, qkv_width()}, "queries");
  } else {
    v.qkv = linear(Role::query_up, phase, v.normed_full, {model_.hidden, qkv_width()}, "queries");
  }
  // One product makes the latent and the shared rotary key.
  const Sharding sharding = output_sharding(Role::kv_down, v.normed_full);
  v.kv_latent = value({label("kv_latent"), {tokens(), latent.kv_rank}, ValueKind::activation, sharding});
  v.rope_key = value({label("rope_key"), {tokens(), latent.rope_head_dim}, ValueKind::activation, sharding});
  const Read weight = use(by_role_.at({layer_, Role::kv_down}), phase);
  add(Role::kv_down, phase, gemm(phase, tokens(), latent.kv_rank + latent.rope_head_dim, model_.hidden),
      {{Operand::input, v.normed_full}, weight},
      {{Operand::output, v.kv_latent}, {Operand::output_beside, v.rope_key}});
  v.kv_normed = norm(Role::kv_norm, phase, v.kv_latent, "kv_normed");
  v.kv = linear(Role::kv_up, phase, v.kv_normed, {latent.kv_rank, kv_width()}, "kv");
}

// Values that are written again count as rows, because they cost what they move.
OpKey ClassBuilder::qk_norm_key() const {
  OpKey key;
  key.kind = OpKind::norm;
  key.dtype = layout_.precision;
  key.dims = {tokens() * (heads() + 2 * kv_heads()), model_.head_dim, 0, 0, 0, 0};
  return key;
}

// Normalises every head of the queries and keys by itself. The values do not change, but are copied beside the keys, so
// that the core finds all three as it does without these norms.
void ClassBuilder::norm_queries_and_keys(LayerValues& v, Phase phase) {
  if (!model_.qk_norm) return;
  v.projected_qkv = v.qkv;
  v.projected_kv = v.kv;
  v.qkv = value_like(v.projected_qkv, label("qk_normed"), ValueKind::activation);
  std::vector<Read> reads{{Operand::input, v.projected_qkv}};
  std::vector<Write> writes{{Operand::output, v.qkv}};
  if (v.projected_kv.valid()) {
    v.kv = value_like(v.projected_kv, label("kv_normed"), ValueKind::activation);
    reads.push_back({Operand::input_beside, v.projected_kv});
    writes.push_back({Operand::output_beside, v.kv});
  }
  reads.push_back(use(by_role_.at({layer_, Role::qk_norm}), phase));
  add(Role::qk_norm, phase, qk_norm_key(), std::move(reads), std::move(writes));
}

// A slice's queries meet the keys and values of all slices up to their own, which are copied into one matrix. Where
// backward computes layers again, those of the other slices are the ones that forward left.
void ClassBuilder::join_keys(LayerValues& v, Phase phase) {
  const bool gathered = layout_.cp > 1;
  const auto pairs_of = [&](const LayerValues& of) { return gathered ? of.kv_of_slice : of.kv; };
  const auto rotary_of = [&](const LayerValues& of) { return gathered ? of.rope_of_slice : of.rope_key; };
  if (turn_ == 0) {  // its own are all
    if (gathered) v.kv_full = v.kv_of_slice, v.rope_full = v.rope_of_slice;
    return;
  }
  const char* suffix = phase == Phase::input_grad ? "again" : "joined";
  const auto joined = [&](const char* name, ValueId own) {
    const Value& source = graph_.value(own);
    return value({label(name) + suffix, {keys(), source.shape.back()}, ValueKind::activation, source.sharding});
  };
  v.kv_full = joined("kv_", pairs_of(v));
  std::int64_t elements = graph_.value(v.kv_full).elements();
  std::vector<Write> writes{{Operand::keys_values, v.kv_full}};
  if (model_.latent) {
    v.rope_full = joined("rope_key_", rotary_of(v));
    elements += graph_.value(v.rope_full).elements();
    writes.push_back({Operand::rotary_key, v.rope_full});
  }
  std::vector<Read> reads;
  for (std::int32_t slice = 0; slice <= turn_; ++slice) {
    const LayerValues& of_slice = slice == turn_ ? v : saved_by(slice);
    reads.push_back({Operand::keys_values, pairs_of(of_slice)});
    if (model_.latent) reads.push_back({Operand::rotary_key, rotary_of(of_slice)});
  }
  Operation& join =
      add(Role::kv_gather, phase, elementwise(phase, elements, 2 * width()), std::move(reads), std::move(writes));
  if (gathered) join.part = 1;  // the gather over ranks goes by the same name
}

// Context parallelism: every rank's queries meet the keys and values of the whole sequence, or of the whole slice.
void ClassBuilder::gather_over_ranks(LayerValues& v, Phase phase) {
  const bool again = phase == Phase::input_grad;
  Sharding whole = graph_.value(v.kv).sharding;
  whole.remove(Axis::cp);
  ValueId& pairs = layout_.has_slices() ? v.kv_of_slice : v.kv_full;
  pairs = value({label(again ? "kv_again" : "kv_all"), {tokens_of_ranks(), kv_width()}, ValueKind::activation, whole});
  std::int64_t elements = graph_.value(pairs).elements();
  std::vector<Read> reads{{Operand::keys_values, v.kv}};
  std::vector<Write> writes{{Operand::keys_values, pairs}};
  if (model_.latent) {
    ValueId& rotary = layout_.has_slices() ? v.rope_of_slice : v.rope_full;
    rotary =
        value({label(again ? "rope_key_again" : "rope_key_all"), {tokens_of_ranks(), model_.latent->rope_head_dim}});
    elements += graph_.value(rotary).elements();
    reads.push_back({Operand::rotary_key, v.rope_key});
    writes.push_back({Operand::rotary_key, rotary});
  }
  transfer(Role::kv_gather, phase, Collective::all_gather, GroupKind::cp, elements, std::move(reads),
           std::move(writes));
}

// Backward gathers whole sequences again instead of keeping them. Those of a slice are kept, because slices behind it
// read them until its own backward.
void ClassBuilder::gather_keys(LayerValues& v, Phase phase) {
  if (layout_.cp > 1 && !v.kv_of_slice.valid()) gather_over_ranks(v, phase);
  if (layout_.has_slices()) join_keys(v, phase);
}

OpKey ClassBuilder::core_key() const {
  OpKey key;
  key.kind = OpKind::attention;
  key.dtype = layout_.precision;
  key.causal_half = layout_.attention == AttentionKernel::flash;
  // Half of the square is computed. A slice's share is its square's half and all of what lies before it.
  const bool all_before = layout_.has_slices() && key.causal_half;
  key.dims = {layout_.micro_batch, heads(),     queries(), all_before ? slice().begin + slice().end : keys(),
              query_head(),        value_head()};
  return key;
}

// What the core reads beside the queries: the keys and values of the whole sequence.
std::vector<Read> ClassBuilder::core_inputs(const LayerValues& v) const {
  std::vector<Read> reads{{Operand::queries, v.qkv}};
  const bool gathered = v.kv_full.valid();
  const ValueId pairs = gathered ? v.kv_full : v.kv, rotary = gathered ? v.rope_full : v.rope_key;
  if (pairs.valid()) reads.push_back({Operand::keys_values, pairs});
  if (rotary.valid()) reads.push_back({Operand::rotary_key, rotary});
  return reads;
}

// The core reads queries, keys and values, and leaves what its backward needs: a flash kernel one number per row, an
// unfused one the s x s matrices (softmax; with dropout also the mask and the dropped-out copy).
void ClassBuilder::attention_core(LayerValues& v, Phase phase) {
  const bool flash = layout_.attention == AttentionKernel::flash;
  const std::int64_t rows = layout_.micro_batch * heads() * queries();
  Sharding of_saved;  // rows of heads, sequence by sequence
  split(of_saved, 0, Axis::tp, Share::sequences);
  split(of_saved, 0, Axis::cp, Share::mirrored);
  const auto saved = [&](Operand operand, const char* name, std::vector<std::int64_t> shape, double bytes = 0) {
    v.attention_saved.push_back({operand, value({label(name), std::move(shape), ValueKind::activation, of_saved, bytes,
                                                 flash ? std::optional(ElementType::fp32) : std::nullopt})});
  };
  v.attention_saved.clear();
  if (flash) {
    saved(Operand::log_sums, "attention.lse", {rows});
  } else {
    saved(Operand::softmax, "attention.softmax", {rows, keys()});
    if (has_dropout()) {
      saved(Operand::kept_elements, "attention.mask", {rows, keys()}, 1);
      saved(Operand::dropped_softmax, "attention.dropped", {rows, keys()});
    }
  }
  // Backward of the core reads it as it is, the weight gradient behind it a rounded copy where products round.
  const double copied = kept_input_bytes();
  v.context = value({label("context"),
                     {tokens(), heads() * value_head()},
                     ValueKind::activation,
                     head_sharding(),
                     copied > 0 ? static_cast<double>(width()) + copied : 0});
  std::vector<Write> writes{{Operand::output, v.context}};
  writes.insert(writes.end(), v.attention_saved.begin(), v.attention_saved.end());
  add(Role::attention, phase, core_key(), core_inputs(v), std::move(writes));
}

void ClassBuilder::forward_attention(LayerValues& v, Phase phase) {
  v.normed = norm(Role::attention_norm, phase, v.input, "attention_norm");
  v.normed_full = whole_over_tp(Role::attention_gather, phase, v.normed, label("attention_in"));
  forward_queries(v, phase);
  norm_queries_and_keys(v, phase);
  gather_keys(v, phase);
  attention_core(v, phase);
  const ValueId partial =
      linear(Role::attention_out, phase, v.context, {heads() * value_head(), model_.hidden}, "attention_out");
  const ValueId branch = to_stream(Role::attention_reduce, phase, partial, label("attention_reduced"));
  v.middle = residual(Role::attention_residual, phase, branch, v.input, &v.attention_mask, "middle");
}

// `saved` is what forward left, `again` what was recomputed (the same unless the whole layer is).
ValueId ClassBuilder::backward_attention(const LayerValues& saved, const LayerValues& again, ValueId grad) {
  LayerValues v = again;
  v.input = saved.input;
  const ValueId branch = residual_backward(Role::attention_residual, v.attention_mask, grad);
  const ValueId dy = whole_over_tp(Role::attention_reduce, Phase::input_grad, branch, label("attention_reduce.dy"));
  const ValueId d_context =
      linear_backward(Role::attention_out, v.context, {dy}, {heads() * value_head(), model_.hidden});
  // What attention read of all tokens is not kept: backward gathers or joins it again.
  if (!recomputed_[layer_]) gather_keys(v, Phase::input_grad);
  if (layout_.recompute == Recompute::selective) attention_core(v, Phase::recompute);
  const ValueId d_queries = backward_queries(v, d_context);
  const ValueId dx = to_stream(Role::attention_gather, Phase::input_grad, d_queries, label("attention_gather.dx"));
  return norm_backward(Role::attention_norm, v.input, dx, grad);
}

// Adds what a slice's queries give the keys and values of all slices up to their own to what those behind it gave.
// Returns the gradients of its own, which no other slice adds to any more.
ClassBuilder::AttentionGrads ClassBuilder::add_to_slices(const AttentionGrads& of_all) {
  std::vector<Read> reads{{Operand::keys_values_grad, of_all.kv}};
  std::int64_t elements = graph_.value(of_all.kv).elements();
  if (of_all.rope_key.valid()) {
    reads.push_back({Operand::rotary_key_grad, of_all.rope_key});
    elements += graph_.value(of_all.rope_key).elements();
  }
  const auto sum_for = [&](const char* name, ValueId like) {
    const Value& source = graph_.value(like);
    const ValueId sum = value({label(name), {slice().size(), source.shape.back()}, source.kind, source.sharding});
    graph_.values[sum].accumulated = true;
    return sum;
  };
  std::vector<Write> writes;
  for (std::int32_t slice = 0; slice <= turn_; ++slice) {
    AttentionGrads& grads = turns_[slice].key_grads;
    if (turn_ + 1 == layout_.slices()) {  // backward begins with the last slice
      const AsTurn of_slice(turn_, slice);
      grads.kv = sum_for("d_kv", of_all.kv);
      if (of_all.rope_key.valid()) grads.rope_key = sum_for("d_rope_key", of_all.rope_key);
    }
    writes.push_back({Operand::keys_values_grad, grads.kv});
    if (of_all.rope_key.valid()) writes.push_back({Operand::rotary_key_grad, grads.rope_key});
  }
  add(Role::kv_reduce, Phase::input_grad, elementwise(Phase::input_grad, elements, 3 * width()), std::move(reads),
      std::move(writes));
  return {of_all.qkv, now().key_grads.kv, now().key_grads.rope_key};
}

ClassBuilder::AttentionGrads ClassBuilder::backward_core(const LayerValues& v, ValueId grad) {
  std::vector<Read> reads = core_inputs(v);
  reads.push_back({Operand::output_grad, grad});
  reads.push_back({Operand::output, v.context});
  for (const Write& saved : v.attention_saved) reads.push_back({saved.operand, saved.value});
  const auto grad_value = [&](const char* name, std::int64_t rows, std::int64_t columns, Sharding sharding) {
    return value({label(name), {rows, columns}, ValueKind::activation_grad, std::move(sharding)});
  };
  const bool gathered = layout_.cp > 1, apart = v.kv.valid();
  // Every rank's queries add to the gradients of all keys.
  const auto of_all_ranks = [&](Sharding sharding) {
    sharding.remove(Axis::cp);
    if (gathered) sharding.add_partial(Axis::cp);
    return sharding;
  };
  const std::int64_t kv_rows = layout_.has_slices() ? keys() : tokens_of_ranks();
  AttentionGrads grads;
  grads.qkv = grad_value(apart ? "d_queries" : "d_qkv", tokens(), apart ? heads() * query_head() : qkv_width(),
                         head_sharding());
  std::vector<Write> writes{{Operand::queries_grad, grads.qkv}};
  if (apart) {
    grads.kv = grad_value("d_kv_all", kv_rows, kv_width(), of_all_ranks(head_sharding()));
    writes.push_back({Operand::keys_values_grad, grads.kv});
  }
  if (model_.latent) {
    grads.rope_key =
        grad_value("d_rope_key_all", kv_rows, model_.latent->rope_head_dim, of_all_ranks(shared_key_sharding()));
    writes.push_back({Operand::rotary_key_grad, grads.rope_key});
  }
  add(Role::attention, Phase::input_grad, core_key(), std::move(reads), std::move(writes));
  if (layout_.has_slices()) grads = add_to_slices(grads);
  return gathered ? scatter_over_ranks(grads) : grads;
}

// Every rank's heads add to the gradient of the rotary key that they share.
Sharding ClassBuilder::shared_key_sharding() const {
  Sharding sharding = token_sharding();
  if (in_tp()) sharding.add_partial(Axis::tp);
  return sharding;
}

// Context-parallel ranks sum the gradients of the keys and values of a sequence or a slice, and keep their own tokens'.
ClassBuilder::AttentionGrads ClassBuilder::scatter_over_ranks(const AttentionGrads& of_all) {
  const auto own = [&](const char* name, std::int64_t columns, Sharding sharding) {
    return value({label(name), {tokens(), columns}, ValueKind::activation_grad, std::move(sharding)});
  };
  AttentionGrads grads{of_all.qkv, own("d_kv", kv_width(), head_sharding()), {}};
  std::int64_t elements = graph_.value(of_all.kv).elements();
  std::vector<Read> partial{{Operand::keys_values_grad, of_all.kv}};
  std::vector<Write> sums{{Operand::keys_values_grad, grads.kv}};
  if (model_.latent) {
    grads.rope_key = own("d_rope_key", model_.latent->rope_head_dim, shared_key_sharding());
    elements += graph_.value(of_all.rope_key).elements();
    partial.push_back({Operand::rotary_key_grad, of_all.rope_key});
    sums.push_back({Operand::rotary_key_grad, grads.rope_key});
  }
  Operation& sum = transfer(Role::kv_reduce, Phase::input_grad, Collective::reduce_scatter, GroupKind::cp, elements,
                            std::move(partial), std::move(sums));
  if (layout_.has_slices()) sum.part = 1;  // the sum over slices goes by the same name
  return grads;
}

// dX, then dW.
ClassBuilder::AttentionGrads ClassBuilder::norm_queries_and_keys_backward(const LayerValues& v,
                                                                          const AttentionGrads& grads) {
  if (!model_.qk_norm) return grads;
  AttentionGrads out;
  out.qkv = value_like(v.projected_qkv, label("qk_norm.dx"), ValueKind::activation_grad);
  std::vector<Read> both = reads_of({grads.qkv, grads.kv});
  both.push_back({Operand::input, v.projected_qkv});
  std::vector<Write> writes{{Operand::input_grad, out.qkv}};
  if (v.projected_kv.valid()) {
    both.push_back({Operand::input_beside, v.projected_kv});
    out.kv = value_like(v.projected_kv, label("qk_norm.d_kv"), ValueKind::activation_grad);
    writes.push_back({Operand::input_beside_grad, out.kv});
  }
  const ParameterIndex weight = by_role_.at({layer_, Role::qk_norm});
  std::vector<Read> reads = both;
  reads.push_back(use(weight, Phase::input_grad));
  add(Role::qk_norm, Phase::input_grad, qk_norm_key(), std::move(reads), std::move(writes));
  weight_grad(weight, qk_norm_key(), std::move(both));
  return out;
}

ValueId ClassBuilder::backward_queries(const LayerValues& v, ValueId grad) {
  const AttentionGrads grads = norm_queries_and_keys_backward(v, backward_core(v, grad));
  const ValueId x =
      whole_over_tp(Role::attention_gather, Phase::weight_grad, v.normed, label("attention_gather.again"));
  if (model_.latent) return backward_latent(v, grads, x);
  if (keys_are_copied()) {
    const ValueId dx = linear_backward(Role::qkv, x, {grads.qkv}, {model_.hidden, heads() * query_head()});
    return linear_backward(Role::kv, x, {grads.kv}, {model_.hidden, kv_width()}, dx);
  }
  return linear_backward(Role::qkv, x, {grads.qkv, grads.kv}, {model_.hidden, qkv_width()});
}

ValueId ClassBuilder::backward_latent(const LayerValues& v, const AttentionGrads& grads, ValueId x) {
  const LatentAttention& latent = *model_.latent;
  const ValueId d_kv_normed = linear_backward(Role::kv_up, v.kv_normed, {grads.kv}, {latent.kv_rank, kv_width()});
  const ValueId d_latent = norm_backward(Role::kv_norm, v.kv_latent, d_kv_normed, {});
  ValueId dx;
  if (latent.q_rank > 0) {
    const ValueId d_query = linear_backward(Role::query_up, v.query_normed, {grads.qkv}, {latent.q_rank, qkv_width()});
    const ValueId d_query_latent = norm_backward(Role::query_norm, v.query_latent, d_query, {});
    dx = linear_backward(Role::query_down, x, {d_query_latent}, {model_.hidden, latent.q_rank});
  } else {
    dx = linear_backward(Role::query_up, x, {grads.qkv}, {model_.hidden, qkv_width()});
  }
  // kv_down's dX is added onto the queries' by the same product.
  return linear_backward(Role::kv_down, x, {d_latent, grads.rope_key},
                         {model_.hidden, latent.kv_rank + latent.rope_head_dim}, dx);
}

}  // namespace weft
