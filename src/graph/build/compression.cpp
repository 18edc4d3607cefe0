// Gradients of data parallelism in fewer bytes. A parameter of E elements in a group of n, in shards of S = ceil(E /
// n):
//   grad_reduce stage   encode gradient and error: n encoded shards; all_to_all: n summands of the own shard
//   grad_merge stage    decode and add them up: S sums; at ZeRO 0 encode these, all_gather: n encoded sums
//   grad_decode stage   ZeRO 0: decode them: E sums
// All parameters pass one stage before the next begins, so that one is on its way while others are encoded.
// Two ranks that hold whole gradients need one transfer only, of the same bytes and with one encoding less:
//   grad_reduce stage   encode gradient and error whole; all_gather: n summands
//   grad_merge stage    decode and add them up: E sums
#include "graph/build/class_builder.hpp"

namespace weft {

bool ClassBuilder::is_compressed(const Parameter& p) {
  // A shard is then smaller than the whole, by which operations on either are told apart.
  if (layout_.zero >= 2 || shards(p.group) == 1 || p.elements == 1 || !layout_.compress.takes(p.elements)) return false;
  if (layout_.compress.format == CompressionFormat::power_sgd) return has_factors(p);
  if (!layout_.compress.between_nodes) return true;
  const ClassGroup& group = rank_class().group(p.group);
  const std::int64_t n = shards(p.group);
  // What a member has of its node's sums is then smaller than the whole, too.
  if (group.has_node_levels()) return (p.elements + n - 1) / n * group.scoped(Scope::outer).view.size < p.elements;
  return group.leaves_node();
}

// All-to-all and all-gather of shards carry 2 (n - 1) / n of a tensor, an all-gather of whole tensors n - 1 of it.
bool ClassBuilder::gathers_summands(const Parameter& p) const {
  return layout_.zero == 0 && shards(p.group) == 2;
}

ValueId ClassBuilder::compress_gradient(const Parameter& p, ValueId grad, Role stage) {
  const std::int64_t n = shards(p.group), shard = (p.elements + n - 1) / n;
  const auto format = static_cast<std::int64_t>(layout_.compress.format);
  OpKey key;
  key.kind = OpKind::decode;
  const bool whole = gathers_summands(p);
  const auto carry = [&](Role role, Collective collective, ValueId encoded, const char* suffix) {
    const std::int64_t bytes =
        whole ? n * graph_.value(encoded).elements() : encoded_shards(layout_.compress.format, p.elements, n).value;
    const ValueId out = once({.name = label(name_of(p.role)) + suffix,
                              .shape = {bytes},
                              .kind = ValueKind::gradient,
                              .dtype = ElementType::u8});
    transfer(role, Phase::optimizer, collective, p.group, bytes, {{Operand::payload, encoded}},
             {{Operand::payload, out}}, p.role)
        .per_micro_batch = false;
    return out;
  };
  if (stage == Role::grad_reduce) {
    const ValueId encoded = encode_gradient(p, grad, whole ? 1 : n, ".grad");
    if (whole) return carry(Role::grad_exchange, Collective::all_gather, encoded, ".grad.summands");
    return carry(Role::grad_exchange, Collective::all_to_all, encoded, ".grad.summands");
  }
  if (whole) {
    if (stage == Role::grad_decode) return grad;
    key.dims = {p.elements, format, 1, n, 0, 0};
    return decode_gradient(p, grad, Role::grad_merge, key, ".grad.reduced");
  }
  if (stage == Role::grad_merge) {
    key.dims = {shard, format, 1, n, 0, 0};
    const ValueId sum = decode_gradient(p, grad, Role::grad_merge, key, ".grad.shard");
    if (layout_.zero == 1) return sum;
    const ValueId encoded = encode_gradient(p, sum, 1, ".grad.shard");
    return carry(Role::grad_gather, Collective::all_gather, encoded, ".grad.sums");
  }
  if (layout_.zero == 1) return grad;
  key.dims = {p.elements, format, n, 1, 0, 0};
  return decode_gradient(p, grad, Role::grad_decode, key, ".grad.reduced");
}

// Adds the encoding of a gradient or of a sum, each with an error of its own.
ValueId ClassBuilder::encode_gradient(const Parameter& p, ValueId grad, std::int64_t shard_count, const char* suffix) {
  const std::string name = label(name_of(p.role)) + suffix;
  const std::int64_t elements = graph_.value(grad).elements();
  const ValueId error = once(
      {.name = name + ".error", .shape = {elements}, .kind = ValueKind::optimizer_state, .dtype = ElementType::fp32});
  const ValueId encoded = once({.name = name + ".encoded",
                                .shape = {encoded_shards(layout_.compress.format, elements, shard_count).value},
                                .kind = ValueKind::gradient,
                                .dtype = ElementType::u8});
  OpKey key;
  key.kind = OpKind::encode;
  key.dtype = ElementType::fp32;
  key.dims = {elements, static_cast<std::int64_t>(layout_.compress.format), shard_count, 0, 0, 0};
  Operation& op =
      add(Role::grad_encode, Phase::optimizer, key, {{Operand::gradient, grad}, {Operand::compression_error, error, 1}},
          {{Operand::encoded, encoded}, {Operand::compression_error, error}});
  op.per_micro_batch = false;
  op.subject = p.role;
  // The encoding of a shard's sum is another operation of the same name.
  op.part = elements * shards(p.group) < p.elements + shards(p.group) ? 1 : 0;
  return encoded;
}

ValueId ClassBuilder::decode_gradient(const Parameter& p, ValueId encoded, Role role, OpKey key, const char* suffix) {
  key.dtype = ElementType::fp32;
  const ValueId sum = once({.name = label(name_of(p.role)) + suffix,
                            .shape = {key.dims[0]},
                            .kind = ValueKind::gradient,
                            .dtype = ElementType::fp32});
  Operation& op = add(role, Phase::optimizer, key, {{Operand::encoded, encoded}}, {{Operand::gradient, sum}});
  op.per_micro_batch = false;
  op.subject = p.role;
  return sum;
}

}  // namespace weft
