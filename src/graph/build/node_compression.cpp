// Gradients that are encoded between nodes only. A parameter of E elements, in a group of n = N * G ranks, N in each of
// G nodes, has n shards of S = ceil(E / n) elements; shards j, N + j, 2 N + j, ... belong to member j of every node.
//   grad_reduce stage   reduce_scatter in the node: the sums of the member's G shards, as they are; encode these and
//                       their errors; all_to_all between nodes: G summands of the own shard
//   grad_merge stage    decode and add them up; at ZeRO 0 encode the sum, all_gather between nodes: G encoded sums
//   grad_decode stage   ZeRO 0: decode them; all_gather in the node: the whole gradient
// Between two nodes at ZeRO 0, one all_gather of encoded shards takes the place of both transfers.
#include "graph/build/class_builder.hpp"

namespace weft {

bool ClassBuilder::is_compressed_between_nodes(const Parameter& p) const {
  return layout_.compress.between_nodes && rank_class().group(p.group).has_node_levels();
}

ValueId ClassBuilder::compress_between_nodes(const Parameter& p, ValueId grad, Role stage) {
  const CompressionFormat format = layout_.compress.format;
  const std::int64_t n = shards(p.group), shard = (p.elements + n - 1) / n;
  const std::int64_t nodes = rank_class().group(p.group).scoped(Scope::outer).view.size, of_node = shard * nodes;
  const bool one_gather = layout_.zero == 0 && nodes == 2;
  const std::string name = label(name_of(p.role)) + ".grad";
  const auto carry = [&](Role role, Collective collective, Scope scope, ValueId from, ValueId to) {
    const std::int64_t elements = std::max(graph_.value(from).elements(), graph_.value(to).elements());
    const std::int64_t whole = scope == Scope::inner ? n * shard : elements;  // shards are padded
    Operation& op = transfer(role, Phase::optimizer, collective, p.group, whole, {{Operand::payload, from}},
                             {{Operand::payload, to}}, p.role);
    op.per_micro_batch = false;
    op.communication->scope = scope;
    return to;
  };
  const auto gradient = [&](const char* suffix, std::int64_t elements) {
    return once({.name = name + suffix, .shape = {elements}, .kind = ValueKind::gradient, .dtype = ElementType::fp32});
  };
  const auto codes = [&](const char* suffix, std::int64_t bytes) {
    return once({.name = name + suffix, .shape = {bytes}, .kind = ValueKind::gradient, .dtype = ElementType::u8});
  };
  const auto decoded = [&](Role role, std::array<std::int64_t, 3> sizes, const char* suffix) {
    return decode_gradient(p, grad, role, code_key(OpKind::decode, format, ElementType::fp32, sizes), suffix);
  };
  const std::int64_t bytes_of_node = encoded_shards(format, of_node, nodes).value;
  if (stage == Role::grad_reduce) {
    const ValueId sums =
        carry(Role::node_reduce, Collective::reduce_scatter, Scope::inner, grad, gradient(".node", of_node));
    const ValueId encoded = encode_gradient(p, sums, nodes, ".grad.node");
    const Collective collective = one_gather ? Collective::all_gather : Collective::all_to_all;
    return carry(Role::grad_exchange, collective, Scope::outer, encoded,
                 codes(".node.summands", one_gather ? nodes * bytes_of_node : bytes_of_node));
  }
  if (stage == Role::grad_merge) {
    if (one_gather) return decoded(Role::grad_merge, {of_node, nodes, nodes}, ".grad.node.sum");
    const ValueId sum = decoded(Role::grad_merge, {shard, 1, nodes}, ".grad.shard");
    if (layout_.zero == 1) return sum;
    const ValueId encoded = encode_gradient(p, sum, 1, ".grad.shard");
    return carry(Role::grad_gather, Collective::all_gather, Scope::outer, encoded, codes(".node.sums", bytes_of_node));
  }
  if (layout_.zero == 1) return grad;
  const ValueId sums = one_gather ? grad : decoded(Role::grad_decode, {of_node, nodes, 1}, ".grad.node.sum");
  return carry(Role::node_gather, Collective::all_gather, Scope::inner, sums, gradient(".reduced", p.elements));
}

}  // namespace weft
