// What ZeRO++ (Wang et al. 2023) adds to ZeRO 2 and 3.
//   hpZ   a layer's forward leaves a share of its parameters in a small group, from which backward gathers
//   qwZ   shards of parameters are encoded behind the update, gathered so, and decoded behind every gather. ZeRO 1 and
//         2, which gather once a step, do the same; the update goes on from shards that are not rounded
//   qgZ   gradients are encoded and exchanged instead of reduced and scattered. With N members in a node and G nodes:
//         encode N * G shards, all_to_all in the node, add up N summands of G shards, encode these, all_to_all between
//         nodes, add up G summands of the own shard. Where there is one level: the second half is left out. Where
//         gradients are encoded between nodes only, a reduce_scatter of plain numbers takes the place of the first
//         half.
#include "graph/build/class_builder.hpp"

namespace weft {

// Backward reads every parameter of a layer again. The head stays whole until then, and nobody reads the embedding.
void ClassBuilder::keep_secondary(ParameterIndex index, ValueId whole) {
  if (layout_.zero_secondary == 0 || layer_ < 0) return;
  const Parameter& p = parameters_[index];
  const std::int64_t share = (p.elements + layout_.zero_secondary - 1) / layout_.zero_secondary;
  const ValueId kept = value({label(name_of(p.role)) + ".kept", {share}, ValueKind::parameter});
  Operation& op = add(Role::param_keep, Phase::forward, elementwise(Phase::forward, share, 2 * width()),
                      {{Operand::weight, whole}}, {{Operand::weight, kept}});
  op.subject = p.role;
  secondary_[index] = kept;
}

bool ClassBuilder::has_encoded_weight(std::int64_t elements, GroupKind group) const {
  return layout_.zero > 0 && layout_.encodes_weights() && elements >= layout_.compress.min_elements &&
         shards(group) > 1;
}

OpKey ClassBuilder::code_key(OpKind kind, CompressionFormat format, ElementType dtype,
                             std::array<std::int64_t, 3> sizes) const {
  OpKey key;
  key.kind = kind;
  key.dtype = dtype;
  key.dims = {sizes[0], static_cast<std::int64_t>(format), sizes[1], sizes[2], 0, 0};
  return key;
}

void ClassBuilder::encode_weight(const Parameter& p, ValueId shard) {
  const std::int64_t elements = graph_.value(shard).elements();
  Operation& op = add(Role::param_encode, Phase::optimizer,
                      code_key(OpKind::encode, layout_.compress_weights, layout_.precision, {elements, 1, 0}),
                      {{Operand::weight, shard}}, {{Operand::encoded, p.encoded}});
  op.per_micro_batch = false;
  op.subject = p.role;
}

void ClassBuilder::gather_encoded(const Parameter& p, Phase when, Role role, ValueId whole) {
  const std::int64_t n = shards(p.group), bytes = graph_.value(p.encoded).elements() * n;
  const ValueId codes = value({.name = label(name_of(role)) + ".codes",
                               .shape = {bytes},
                               .kind = ValueKind::parameter,
                               .dtype = ElementType::u8});
  transfer(Role::param_gather, when, Collective::all_gather, p.group, bytes, {{Operand::payload, p.encoded, 1}},
           {{Operand::payload, codes}}, role);
  add(Role::param_decode, when,
      code_key(OpKind::decode, layout_.compress_weights, layout_.precision, {graph_.value(whole).elements(), n, 1}),
      {{Operand::encoded, codes}}, {{Operand::weight, whole}})
      .subject = role;
}

void ClassBuilder::gather_updated(const Parameter& p) {
  const std::int64_t bytes = graph_.value(p.codes).elements();
  transfer(Role::param_gather, Phase::optimizer, Collective::all_gather, p.group, bytes,
           {{Operand::payload, p.encoded}}, {{Operand::payload, p.codes}}, p.role)
      .per_micro_batch = false;
}

void ClassBuilder::decode_updated(const Parameter& p) {
  Operation& op =
      add(Role::param_decode, Phase::optimizer,
          code_key(OpKind::decode, layout_.compress_weights, layout_.precision, {p.elements, shards(p.group), 1}),
          {{Operand::encoded, p.codes}}, {{Operand::weight, p.weight}});
  op.per_micro_batch = false;
  op.subject = p.role;
}

bool ClassBuilder::exchanges_gradient(const Parameter& p) const {
  if (layout_.zero < 2 || shards(p.group) == 1 || !layout_.compress.takes(p.elements)) return false;
  return !layout_.compress.between_nodes || rank_class().group(p.group).leaves_node();
}

void ClassBuilder::exchange_gradient(const Parameter& p, ValueId whole, Role role) {
  const ClassGroup& group = rank_class().group(p.group);
  const bool in_levels = group.has_node_levels();
  const std::int64_t n = shards(p.group), shard = graph_.value(p.gradient).elements();
  const std::int64_t nodes = in_levels ? group.scoped(Scope::outer).view.size : 1;
  if (!in_levels) return exchange_in_hop(p, {whole, p.gradient, n, n, Scope::whole, 0}, role);
  const ValueId of_node = value({.name = label(name_of(role)) + ".grad.node",
                                 .shape = {shard * nodes},
                                 .kind = ValueKind::gradient,
                                 .dtype = layout_.compress.between_nodes ? layout_.grad_dtype : ElementType::fp32});
  if (layout_.compress.between_nodes) {
    transfer(Role::node_reduce, Phase::weight_grad, Collective::reduce_scatter, p.group, shard * n,
             {{Operand::payload, whole}}, {{Operand::payload, of_node}}, role)
        .communication->scope = Scope::inner;
  } else {
    exchange_in_hop(p, {whole, of_node, n, n / nodes, Scope::inner, 0}, role);
  }
  exchange_in_hop(p, {of_node, p.gradient, nodes, nodes, Scope::outer, 1}, role);
}

void ClassBuilder::exchange_in_hop(const Parameter& p, const Hop& hop, Role role) {
  const CompressionFormat format = layout_.compress.format;
  const std::int64_t elements = graph_.value(p.gradient).elements() * hop.shards;
  const std::int64_t bytes = encoded_shards(format, elements, hop.shards).value;
  const std::string name = label(name_of(role)) + (hop.number == 0 ? ".grad" : ".grad.node");
  const auto coded = [&](const char* suffix) {
    return value({.name = name + suffix, .shape = {bytes}, .kind = ValueKind::gradient, .dtype = ElementType::u8});
  };
  const auto name_hop = [&](Operation& op) {
    op.subject = role;
    op.part = hop.number;
  };
  const ValueId codes = coded(".codes"), summands = coded(".summands");
  name_hop(add(Role::grad_encode, Phase::weight_grad,
               code_key(OpKind::encode, format, graph_.value(hop.from).dtype, {elements, hop.shards, 0}),
               {{Operand::gradient, hop.from}}, {{Operand::encoded, codes}}));
  Operation& exchange = transfer(Role::grad_exchange, Phase::weight_grad, Collective::all_to_all, p.group, bytes,
                                 {{Operand::payload, codes}}, {{Operand::payload, summands}}, role);
  exchange.part = hop.number;
  exchange.communication->scope = hop.scope;
  name_hop(add(Role::grad_merge, Phase::weight_grad,
               code_key(OpKind::decode, format, graph_.value(hop.to).dtype,
                        {elements / hop.members, hop.shards / hop.members, hop.members}),
               {{Operand::encoded, summands}}, {{Operand::gradient, hop.to}}));
}

}  // namespace weft
