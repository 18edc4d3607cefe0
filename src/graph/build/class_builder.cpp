#include "graph/build/class_builder.hpp"

#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "base/error.hpp"

namespace weft {

ClassBuilder::ClassBuilder(StepGraph& graph, TransferTable& transfers, const Transformer& model, const Layout& layout,
                           ClassId id)
    : graph_(graph),
      transfers_(transfers),
      model_(model),
      layout_(layout),
      id_(id),
      recomputed_(recomputed_layers(layout, model)) {
  const std::vector<std::int64_t> per_chunk = layers_per_chunk(layout, model);
  for (std::int32_t chunk = 0; chunk < layout.vpp; ++chunk) {
    const std::int64_t in_model = global_chunk(chunk) % layout.model_chunks();
    const std::int64_t first = std::accumulate(per_chunk.begin(), per_chunk.begin() + in_model, std::int64_t{0});
    chunk_layers_.emplace_back(static_cast<std::int32_t>(first), static_cast<std::int32_t>(per_chunk[in_model]));
  }
  turns_.resize(static_cast<std::size_t>(layout.group_size() * layout.slices()));
  for (Turn& turn : turns_) {
    turn.saved.resize(chunk_layers_.size());
    turn.chunk_output.resize(chunk_layers_.size());
    turn.chunk_input_grad.resize(chunk_layers_.size());
  }
}

void ClassBuilder::build() {
  const auto chunks = static_cast<std::int32_t>(layout_.vpp);
  const auto pass = [&] {
    for (std::int32_t chunk = 0; chunk < chunks; ++chunk) forward_chunk(chunk);
    for (std::int32_t chunk = chunks - 1; chunk >= 0; --chunk) backward_chunk(chunk);
  };
  if (layout_.reduction_group() == 1) {
    pass();
  } else {
    for (only_turn_ = 0; only_turn_ < std::ssize(turns_); ++only_turn_) pass();
  }
  finish_step();
  add_tasks();
}

void ClassBuilder::forward_chunk(std::int32_t chunk) {
  chunk_ = chunk;
  in_turns([&](Turn& turn) { turn.stream = forward_input(chunk); });
  const auto [first, count] = chunk_layers_[chunk];
  for (layer_ = first; layer_ < first + count; ++layer_) {
    declare_layer(layer_);
    in_turns([&](Turn& turn) {
      turn.saved[chunk].push_back(forward_layer(turn.stream, Phase::forward));
      turn.stream = turn.saved[chunk].back().output;
    });
    forget_gathered();
  }
  layer_ = -1;
  if (layout_.layer_group > 1) return;  // backward_chunk has the head
  in_turns([&](Turn& turn) { forward_output(chunk, turn.stream); });
  if (!keeps_gathered_head(chunk)) forget_gathered();
}

// The backward of the head follows its forward at once, so nobody gathers its weights anew: not FSDP, whose root module
// stays whole after forward, nor DeepSpeed, which keeps what is used again soon. Where other passes run between the
// two, each of them would hold a copy.
bool ClassBuilder::keeps_gathered_head(std::int32_t chunk) const {
  return shape_of(layout_).is_last(global_chunk(chunk)) && passes_in_flight(layout_)[rank_class().stage] == 1;
}

// The micro-batches of a layer group go through the head forward and at once backward, so that the logits of one of
// them are in memory at a time.
void ClassBuilder::backward_chunk(std::int32_t chunk) {
  chunk_ = chunk;
  in_backward_turns([&](Turn& turn) {
    if (layout_.layer_group > 1) forward_output(chunk, turn.stream);
    turn.grad = backward_output(chunk);
  });
  forget_gathered();
  const auto [first, count] = chunk_layers_[chunk];
  for (layer_ = first + count - 1; layer_ >= first; --layer_) {
    in_backward_turns([&](Turn& turn) {
      const LayerValues& saved = turn.saved[chunk][layer_ - first];
      const LayerValues again = recomputed_[layer_] ? recompute_layer(saved) : saved;
      turn.grad = backward_layer(saved, again, turn.grad);
    });
    forget_gathered();
  }
  layer_ = -1;
  in_backward_turns([&](Turn& turn) { backward_input(chunk, turn.grad); });
  forget_gathered();
}

LayerValues ClassBuilder::forward_layer(ValueId input, Phase phase) {
  LayerValues v;
  v.input = input;
  forward_attention(v, phase);
  forward_ffn(v, phase);
  return v;
}

LayerValues ClassBuilder::recompute_layer(const LayerValues& saved) {
  const bool keeps_exchanged = layout_.recompute == Recompute::local && model_.is_moe_layer(layer_);
  if (!keeps_exchanged) return forward_layer(saved.input, Phase::recompute);
  LayerValues v;
  v.input = saved.input;
  v.ffn_mask = saved.ffn_mask;
  forward_attention(v, Phase::recompute);
  v.ffn_normed = norm(Role::ffn_norm, Phase::recompute, v.middle, "ffn_norm");
  if (model_.experts->shared_ffn > 0) forward_mlp(v, Phase::recompute, true);
  recompute_experts(v, saved);
  return v;
}

ValueId ClassBuilder::backward_layer(const LayerValues& saved, const LayerValues& again, ValueId grad) {
  const ValueId middle_grad = backward_ffn(again, grad);
  return backward_attention(saved, again, middle_grad);
}

ValueId ClassBuilder::value(NewValue spec) {
  Value v;
  v.name = std::move(spec.name);
  if (turn_ >= 0) v.name += fmt::format(" of turn {}", turn_);
  v.rank_class = id_;
  v.kind = spec.kind;
  v.dtype = spec.dtype.value_or(layout_.precision);
  v.shape = std::move(spec.shape);
  v.sharding = std::move(spec.sharding);
  v.bytes_per_element = spec.bytes_per_element;
  v.scale_block = spec.scale_block;
  graph_.values.push_back(std::move(v));
  return make_id<ValueId>(graph_.values.size() - 1);
}

ValueId ClassBuilder::value_like(ValueId source, std::string name, ValueKind kind, double bytes_per_element) {
  const Value& like = graph_.value(source);
  return value({std::move(name), like.shape, kind, like.sharding, bytes_per_element});
}

ValueId ClassBuilder::once(NewValue spec, bool accumulated) {
  const AsTurn all(turn_, kAllTurns);
  const ValueId id = value(std::move(spec));
  Value& v = graph_.values[id.index()];
  v.per_micro_batch = false;
  v.accumulated = accumulated;
  return id;
}

Operation& ClassBuilder::add(Role role, Phase phase, OpKey key, std::vector<Read> reads, std::vector<Write> writes) {
  Operation op;
  op.rank_class = id_;
  op.chunk = chunk_;
  op.layer = layer_;
  op.phase = phase;
  op.role = role;
  op.subject = role;
  op.turn = turn_;
  key.phase = phase;
  if (key.kind == OpKind::gemm && rounds_operands(role)) key.product = layout_.products;
  op.key = key;
  op.reads = std::move(reads);
  op.writes = std::move(writes);
  graph_.operations.push_back(std::move(op));
  return graph_.operations.back();
}

Operation& ClassBuilder::transfer(Role role, Phase phase, Collective collective, GroupKind group, std::int64_t elements,
                                  std::vector<Read> reads, std::vector<Write> writes, std::optional<Role> subject) {
  OpKey key;
  key.kind = OpKind::transfer;
  const WireFormat format = travels_rounded(role, subject.value_or(role), phase, collective)
                                ? WireFormat{ElementType::fp8}
                                : graph_.value(reads.empty() ? writes.front().value : reads.front().value).format();
  const Bytes bytes = wire_bytes(elements, format);
  key.dtype = format.type;
  key.dims[0] = bytes.value;
  Operation& op = add(role, phase, key, std::move(reads), std::move(writes));
  op.subject = subject.value_or(role);
  Communication c;
  c.collective = collective;
  c.algorithm =
      collective == Collective::all_to_all || collective == Collective::send_recv ? Algorithm::direct : Algorithm::ring;
  c.group = group;
  c.format = format;
  c.bytes = bytes;
  const ClassGroup& members = rank_class().group(group);
  if (collective != Collective::send_recv && members.spans_classes()) {
    // The two copies of tied embeddings on different stages go by different names.
    const Role name = role == Role::tied_reduce ? Role::embedding : op.subject;
    // Each model chunk of a stage has a gather of what it received; all else outside of layers a stage has once.
    const std::int32_t place = role == Role::stage_gather ? -2 - chunk_ : layer_;
    c.transfer = transfers_.id({group, members.members.front().value, role, name, phase, place, turn_});
  }
  op.communication = c;
  return op;
}

// Transformer Engine rounds the inputs and output gradients of its linear layers before it gathers them, and with
// primary weights in fp8 the optimizer does so with those. fp4 travels as fp8: plans have no narrower element.
bool ClassBuilder::travels_rounded(Role role, Role subject, Phase phase, Collective collective) const {
  if (layout_.products == ProductFormat::stored || collective != Collective::all_gather) return false;
  switch (role) {
    case Role::attention_gather:
    case Role::ffn_gather:
      return !model_.is_moe_layer(layer_) || role == Role::attention_gather;
    case Role::attention_reduce:
    case Role::ffn_reduce:
      return true;
    case Role::param_gather:
      return layout_.fp8_param_gather && phase == Phase::optimizer && rounds_operands(subject);
    default:
      return false;
  }
}

double ClassBuilder::kept_input_bytes() const {
  return layout_.products == ProductFormat::stored ? 0 : bytes_per_element(layout_.products, layout_.precision);
}

// An all_gather multiplies the first dimension by the group, a reduce_scatter divides it.
ValueId ClassBuilder::collective(Role role, Phase phase, Collective kind, GroupKind group, ValueId in, std::string name,
                                 Share share) {
  const Value& source = graph_.value(in);
  const std::int64_t source_elements = source.elements();
  const std::int64_t size = rank_class().group(group).view.size;
  NewValue out{std::move(name),          source.shape, source.kind,       source.sharding,
               source.bytes_per_element, source.dtype, source.scale_block};
  const Axis axis = axis_of(group);
  if (kind != Collective::all_to_all) out.sharding.remove(axis);
  if (kind == Collective::all_gather) {
    out.shape[0] *= size;
  } else if (kind == Collective::reduce_scatter) {
    WEFT_CHECK(out.shape[0] % size == 0);
    out.shape[0] /= size;
    out.sharding.add_split({0, axis, share});
  }
  const ValueId result = value(std::move(out));
  const std::int64_t whole = kind == Collective::all_gather ? graph_.value(result).elements() : source_elements;
  transfer(role, phase, kind, group, whole, {{Operand::payload, in}}, {{Operand::payload, result}});
  return result;
}

OpKey ClassBuilder::gemm(Phase phase, std::int64_t rows, std::int64_t columns, std::int64_t inner,
                         std::int64_t count) const {
  OpKey key;
  key.kind = OpKind::gemm;
  key.phase = phase;
  key.dtype = layout_.precision;
  key.dims = {rows, columns, inner, count, 0, 0};
  return key;
}

OpKey ClassBuilder::elementwise(Phase phase, std::int64_t elements, std::int64_t bytes_per_element) const {
  OpKey key;
  key.kind = OpKind::elementwise;
  key.phase = phase;
  key.dtype = layout_.precision;
  key.dims = {elements, bytes_per_element, 0, 0, 0, 0};
  return key;
}

// Called for every value, so the layer's part of the name is made once, with room for a suffix.
std::string ClassBuilder::label(std::string_view what) {
  constexpr std::size_t kSuffix = 16;
  if (layer_ != labelled_layer_) {
    label_prefix_ = layer_ >= 0 ? fmt::format("layer {} ", layer_) : std::string();
    labelled_layer_ = layer_;
  }
  std::string text;
  text.reserve(label_prefix_.size() + what.size() + kSuffix);
  text += label_prefix_;
  text += what;
  return text;
}

}  // namespace weft
