// Parameters, gradients and optimizer state: ZeRO 0 to 3, gradient reduction, clipping, the update.
#include <fmt/format.h>

#include "graph/build/class_builder.hpp"
#include "graph/held_tensor.hpp"

namespace weft {

std::int64_t ClassBuilder::shards(GroupKind group) const {
  return rank_class().group(group).view.size;
}

std::int64_t ClassBuilder::held_elements(Role role) {
  const auto [found, is_new] = held_elements_.try_emplace(role, 0);
  if (is_new) {
    for (const HeldTensor& tensor : held_tensors(model_, layout_, layer_, role, {})) found->second += tensor.elements();
  }
  return found->second;
}

ClassBuilder::ParameterIndex ClassBuilder::parameter(Role role, std::optional<GroupKind> replicas) {
  if (const auto declared = by_role_.find({layer_, role}); declared != by_role_.end()) return declared->second;
  const std::int64_t elements = held_elements(role);
  const GroupKind group = sharding_group(layout_, role);
  Parameter p{
      .role = role, .chunk = chunk_, .layer = layer_, .elements = elements, .group = group, .replicas = replicas};
  const std::int64_t n = shards(group);
  const std::int64_t shard = (elements + n - 1) / n;
  const std::string name = label(name_of(role));
  p.weight = once({name + ".weight",
                   {layout_.zero == 3 ? shard : elements},
                   ValueKind::parameter,
                   zero_sharding(group, layout_.zero == 3)});
  p.gradient = once({.name = name + ".grad",
                     .shape = {layout_.reduces_once_a_step() ? elements : shard},
                     .kind = ValueKind::gradient,
                     .sharding = zero_sharding(group, !layout_.reduces_once_a_step()),
                     .dtype = layout_.grad_dtype},
                    true);
  if (has_encoded_weight(elements, group)) {
    p.encoded = once({.name = name + ".weight.encoded",
                      .shape = {encoded_bytes(layout_.compress_weights, shard).value},
                      .kind = ValueKind::parameter,
                      .dtype = ElementType::u8});
    if (layout_.zero < 3) {
      p.codes = once({.name = name + ".weight.codes",
                      .shape = {graph_.value(p.encoded).elements() * n},
                      .kind = ValueKind::parameter,
                      .dtype = ElementType::u8});
    }
  }
  parameters_.push_back(p);
  by_role_[{layer_, role}] = parameters_.size() - 1;
  return parameters_.size() - 1;
}

// Returns the parameters that a computation reads: those that the last iteration's update (or gather) left or, under
// ZeRO-3, a whole copy gathered just before its first use in a layer's forward or backward, by whichever micro-batch of
// a layer group comes first.
Read ClassBuilder::use(ParameterIndex index, Phase phase, std::optional<Role> user) {
  const Parameter& p = parameters_[index];
  if (layout_.zero < 3 || shards(p.group) == 1) return {Operand::weight, p.weight, 1};
  const auto found = gathered_.find(index);
  if (found != gathered_.end()) return {Operand::weight, found->second};
  const auto kept = secondary_.find(index);
  const bool from_kept = phase != Phase::forward && kept != secondary_.end();
  const GroupKind group = from_kept ? GroupKind::secondary : p.group;
  const Read share = from_kept ? Read{Operand::payload, kept->second} : Read{Operand::payload, p.weight, 1};
  const std::int64_t elements = graph_.value(share.value).elements() * shards(group);
  const Role role = user.value_or(p.role);
  const AsTurn all(turn_, layout_.layer_group > 1 ? kAllTurns : turn_);
  const ValueId whole = value({label(name_of(role)) + ".gathered", {elements}, ValueKind::parameter});
  const Phase when = phase == Phase::forward ? Phase::forward : Phase::input_grad;
  if (p.encoded.valid() && !from_kept) {
    gather_encoded(p, when, role, whole);
  } else {
    transfer(Role::param_gather, when, Collective::all_gather, group, elements, {share}, {{Operand::payload, whole}},
             role);
  }
  gathered_[index] = whole;
  if (when == Phase::forward) keep_secondary(index, whole);
  return {Operand::weight, whole};
}

// Returns where the micro-batches of a group add up a gradient, or where the only one leaves it. Each slice has
// its own: the passes of slices lie apart, and a gradient that waited for all of them would be held as long.
ValueId ClassBuilder::whole_gradient(ParameterIndex index, Role role) {
  const Parameter& p = parameters_[index];
  const auto [found, is_new] = whole_gradients_.try_emplace({index, role});
  if (is_new || layout_.has_slices()) {
    const AsTurn all(turn_, layout_.has_slices() ? turn_ : kAllTurns);
    found->second = value({.name = label(name_of(role)) + ".grad.whole",
                           .shape = {graph_.value(p.gradient).elements() * shards(p.group)},
                           .kind = ValueKind::gradient,
                           .dtype = layout_.grad_dtype});
    graph_.values[found->second].accumulated = layout_.group_size() > 1;
  }
  return found->second;
}

// Where ranks keep only a shard of the gradient (ZeRO 2 and 3 unless the layout says otherwise), the gradient of every
// micro-batch, slice or group of them, is reduced and scattered at once.
void ClassBuilder::weight_grad(ParameterIndex index, OpKey key, std::vector<Read> reads) {
  const Parameter& p = parameters_[index];
  // A tied head accumulates under its own role into the embedding's gradient.
  const Role role = key.kind == OpKind::gemm && p.role == Role::embedding ? Role::head : p.role;
  if (layout_.reduces_once_a_step() || shards(p.group) == 1) {
    add(role, Phase::weight_grad, key, std::move(reads), {{Operand::weight_grad, p.gradient}});
    return;
  }
  const ValueId whole = whole_gradient(index, role);
  add(role, Phase::weight_grad, key, std::move(reads), {{Operand::weight_grad, whole}});
  if (!layout_.has_slices() && !is_last_turn()) return;
  const AsTurn all(turn_, layout_.has_slices() ? turn_ : kAllTurns);
  if (exchanges_gradient(p)) return exchange_gradient(p, whole, role);
  transfer(Role::grad_reduce, Phase::weight_grad, Collective::reduce_scatter, p.group, graph_.value(whole).elements(),
           {{Operand::payload, whole}}, {{Operand::payload, p.gradient}}, role);
}

// Adds one reduction between the accumulated gradient and the one that the update reads: over tensor-parallel replicas,
// data parallelism (in three stages where it is compressed), replicas of shards or the copy of the other direction of a
// pipeline, or the other copy of tied embeddings.
// Returns what the next one reads.
ValueId ClassBuilder::reduce_gradient(Parameter& p, ValueId grad, Role stage) {
  const std::string name = label(name_of(p.role));
  const std::int64_t own = graph_.value(grad).elements();
  const auto reduce = [&](Collective kind, GroupKind group, const char* suffix, std::int64_t elements,
                          std::int64_t whole) {
    const ValueId out =
        once({.name = name + suffix, .shape = {elements}, .kind = ValueKind::gradient, .dtype = layout_.grad_dtype});
    transfer(stage, Phase::optimizer, kind, group, whole, {{Operand::payload, grad}}, {{Operand::payload, out}}, p.role)
        .per_micro_batch = false;
    return out;
  };
  if (stage == Role::replica_reduce) {
    if (!p.replicas) return grad;
    return reduce(Collective::all_reduce, *p.replicas, ".grad.replicas", own, own);
  }
  if (stage == Role::shard_reduce) {
    if (p.group != GroupKind::shard && layout_.directions() == 1) return grad;
    const GroupKind copies = layout_.directions() > 1 ? GroupKind::tied : GroupKind::replica;
    return reduce(Collective::all_reduce, copies, ".grad.summed", own, own);
  }
  if (stage == Role::tied_reduce) {
    if (!p.tied) return grad;
    return reduce(Collective::all_reduce, GroupKind::tied, ".grad.tied", own, own);
  }
  if (is_compressed(p)) {
    if (layout_.compress.format == CompressionFormat::power_sgd) return factor_gradient(p, grad, stage);
    if (is_compressed_between_nodes(p)) return compress_between_nodes(p, grad, stage);
    return compress_gradient(p, grad, stage);
  }
  const std::int64_t n = shards(p.group);
  if (n == 1 || stage != Role::grad_reduce) return grad;
  const std::int64_t shard = (p.elements + n - 1) / n;
  if (!layout_.reduces_once_a_step()) {
    // The update of ZeRO 0 needs the whole sum, which is gathered once, however often its shards were added to.
    if (layout_.zero > 0) return grad;
    return reduce(Collective::all_gather, p.group, ".grad.reduced", p.elements, shard * n);
  }
  if (layout_.zero == 0) return reduce(Collective::all_reduce, p.group, ".grad.reduced", p.elements, own);
  return reduce(Collective::reduce_scatter, p.group, ".grad.shard", shard, shard * n);
}

void ClassBuilder::finish_step() {
  const bool first_and_last = !layout_.ends_meet() && model_.tied_embeddings;
  if (first_and_last) {
    for (Parameter& p : parameters_) p.tied = p.role == Role::embedding || p.role == Role::head;
  }
  emit_updates();
}

// Adds the norm of all gradients, of which every rank has a part.
ValueId ClassBuilder::emit_norm(const std::vector<ValueId>& gradients) {
  chunk_ = 0;
  layer_ = -1;
  std::vector<Read> reads;
  std::int64_t elements = 0;
  for (const ValueId grad : gradients) {
    reads.push_back({Operand::gradient, grad});
    elements += graph_.value(grad).elements();
  }
  OpKey key;
  key.kind = OpKind::square_sum;
  key.dtype = layout_.grad_dtype;
  key.dims[0] = elements;
  const ValueId norm =
      once({.name = "grad_norm.local", .shape = {1}, .kind = ValueKind::scalar, .dtype = ElementType::fp32});
  add(Role::grad_norm, Phase::optimizer, key, std::move(reads), {{Operand::square_sum, norm}}).per_micro_batch = false;
  if (shards(GroupKind::norm) == 1) return norm;
  const ValueId all = once({.name = "grad_norm", .shape = {1}, .kind = ValueKind::scalar, .dtype = ElementType::fp32});
  transfer(Role::norm_reduce, Phase::optimizer, Collective::all_reduce, GroupKind::norm, 1, {{Operand::payload, norm}},
           {{Operand::payload, all}})
      .per_micro_batch = false;
  return all;
}

// `norm` is given where gradients are clipped.
void ClassBuilder::emit_update(Parameter& p, ValueId gradient, ValueId norm) {
  const std::int64_t n = shards(p.group);
  const std::int64_t own = layout_.zero >= 1 ? (p.elements + n - 1) / n : p.elements;
  const std::string name = label(name_of(p.role));
  // Adam: two moments, and a master copy where the weights are 16 bits wide; else the weights are read themselves.
  const bool master = layout_.precision != ElementType::fp32;
  const std::int64_t state_width = master ? 12 : 8;
  const ValueId state = once({.name = name + ".state",
                              .shape = {own},
                              .kind = ValueKind::optimizer_state,
                              .sharding = zero_sharding(p.group, layout_.zero >= 1),
                              .bytes_per_element = static_cast<double>(state_width),
                              .dtype = ElementType::fp32});
  OpKey key;
  key.kind = OpKind::adam;
  key.dtype = layout_.precision;
  key.dims = {own, size_of(layout_.grad_dtype).value + 2 * state_width + (master ? 1 : 2) * width(), 0, 0, 0, 0};
  std::vector<Read> reads{{Operand::gradient, gradient}, {Operand::optimizer_state, state, 1}};
  const bool gathers = n > 1 && (layout_.zero == 1 || layout_.zero == 2);
  p.updated =
      gathers ? once({name + ".weight.shard", {own}, ValueKind::parameter, zero_sharding(p.group, true)}) : p.weight;
  // What is gathered encoded is rounded, and the update goes on from what is not.
  if (!master) reads.push_back({Operand::weight, p.encoded.valid() ? p.updated : p.weight, 1});
  if (norm.valid()) reads.push_back({Operand::square_sum, norm});
  if (p.direction.valid()) reads.push_back({Operand::direction, p.direction});
  add(Role::update, Phase::optimizer, key, std::move(reads),
      {{Operand::weight, p.updated}, {Operand::optimizer_state, state}})
      .per_micro_batch = false;
  graph_.operations.back().subject = p.role;
  if (p.encoded.valid() && !gathers) encode_weight(p, p.updated);
  if (gathers && !p.encoded.valid()) {
    transfer(Role::param_gather, Phase::optimizer, Collective::all_gather, p.group, own * n,
             {{Operand::payload, p.updated}}, {{Operand::payload, p.weight}}, p.role)
        .per_micro_batch = false;
  }
}

void ClassBuilder::emit_updates() {
  std::vector<ValueId> reduced;
  for (const Parameter& p : parameters_) reduced.push_back(p.gradient);
  for (const Role stage : {Role::replica_reduce, Role::grad_reduce, Role::grad_merge, Role::grad_decode,
                           Role::shard_reduce, Role::tied_reduce}) {
    // Gradients become whole in the order in which backward finishes them: last layer first.
    for (std::size_t i = parameters_.size(); i-- > 0;) {
      chunk_ = parameters_[i].chunk;
      layer_ = parameters_[i].layer;
      reduced[i] = reduce_gradient(parameters_[i], reduced[i], stage);
    }
  }
  ValueId norm;
  if (layout_.clip_grad > 0) {
    // Of two copies of a parameter one counts.
    std::vector<ValueId> counted;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!shape_of(layout_).is_copy(rank_class().stage, parameters_[i].chunk)) counted.push_back(reduced[i]);
    }
    norm = emit_norm(counted);
  }
  const auto for_parameters = [&](auto emit) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      chunk_ = parameters_[i].chunk;
      layer_ = parameters_[i].layer;
      emit(i);
    }
  };
  const auto for_factors = [&](auto emit) {
    for_parameters([&](std::size_t i) {
      if (kfac_.contains(i)) emit(i);
    });
  };
  for_factors([&](std::size_t i) { reduce_curvature(i); });
  std::vector<ValueId> whole = reduced;
  for_factors([&](std::size_t i) { whole[i] = gather_gradient(parameters_[i], reduced[i]); });
  for_factors([&](std::size_t i) { precondition(i, whole[i]); });
  for_parameters([&](std::size_t i) { emit_update(parameters_[i], reduced[i], norm); });
  // One of these after the other for all parameters: what is merged stands where the first of it stood.
  const auto for_codes = [&](auto emit) {
    for_parameters([&](std::size_t i) {
      if (parameters_[i].codes.valid()) emit(parameters_[i]);
    });
  };
  for_codes([&](const Parameter& p) { encode_weight(p, p.updated); });
  for_codes([&](const Parameter& p) { gather_updated(p); });
  for_codes([&](const Parameter& p) { decode_updated(p); });
  for_factors([&](std::size_t i) { invert_curvature(i); });
  layer_ = -1;
}

}  // namespace weft
