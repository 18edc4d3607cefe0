#include "exec/bind_zero_plus_plus.hpp"

#include "base/mix.hpp"
#include "compress/compressor.hpp"

namespace weft {
namespace {

// Copies this rank's share of gathered parameters; the last ranks of a group may have none.
BoundOperation bind_keep(const RankView& view, const ParameterState& p, const Operation& op, MicroBatch micro_batch) {
  const ElementRange own = view.own_shard(p.elements, GroupKind::secondary);
  const ElementPointer whole = view.data(read_of(op, Operand::weight), micro_batch);
  const Matrix from = Matrix::dense(whole + own.begin, 1, own.size());
  const Matrix to = Matrix::dense(view.data(write_of(op, Operand::weight), micro_batch), 1, own.size());
  return [from, to](Kernels& kernels, std::int64_t) {
    if (from.columns > 0) kernels.copy(from, to);
  };
}

GradientHop hop_of(const RankView& view, GroupKind group, const Operation& op) {
  const bool in_levels = view.plan().graph.classes[view.rank_class()].group(group).has_node_levels();
  const std::int64_t ranks = view.group_size(group), inner = in_levels ? view.inner_size(group) : ranks;
  return {inner, ranks / inner, op.part, view.position_in(group)};
}

}  // namespace

bool is_of_gathered_weights(const Operation& op) {
  return op.role == Role::param_encode || op.role == Role::param_decode || op.role == Role::param_keep;
}

BoundOperation bind_gathered_weights(const RankView& view, const ParameterStates& parameters, const Operation& op,
                                     MicroBatch micro_batch) {
  const ParameterState& p = parameters.of(op.layer, op.subject);
  if (op.role == Role::param_keep) return bind_keep(view, p, op, micro_batch);
  if (op.role == Role::param_encode) {
    const Vector own = parameters.own_weights(p);
    const ValueId written = write_of(op, Operand::encoded);
    const EncodedShards encoded{.format = compression_of(op.key),
                                .elements = own.size,
                                .bytes = {view.data(written), view.original().value(written).elements()}};
    return [own, encoded](Kernels& kernels, std::int64_t) { kernels.encode(own, {}, {}, encoded, nullptr); };
  }
  const std::int64_t ranks = op.key.dims[2];
  const ValueId codes = read_of(op, Operand::encoded);
  const EncodedShards encoded{.format = compression_of(op.key),
                              .elements = (p.elements + ranks - 1) / ranks,
                              .shards = ranks,
                              .bytes = {view.data(codes, micro_batch), view.original().value(codes).elements()}};
  const Vector whole{view.data(write_of(op, Operand::weight), micro_batch), p.elements};
  return [encoded, whole](Kernels& kernels, std::int64_t) { kernels.decode_sum(encoded, 1, whole); };
}

BoundOperation bind_hop_encode(const RankView& view, const ParameterStates& parameters, std::uint64_t seed,
                               const Operation& op, MicroBatch micro_batch) {
  const ParameterState& p = parameters.of(op.layer, op.subject);
  const GradientHop hop = hop_of(view, p.group, op);
  const CompressionFormat format = compression_of(op.key);
  const std::int64_t ranks = view.group_size(p.group), shard = (p.elements + ranks - 1) / ranks;
  const ElementPointer from = view.data(read_of(op, Operand::gradient), micro_batch);
  std::byte* const codes = view.data(write_of(op, Operand::encoded), micro_batch).address;
  // In the first hop shards lie where they do in the whole, in the second one after the other.
  std::vector<Vector> shards;
  for (std::int64_t slot = 0; slot < hop.slots(); ++slot) {
    const ElementRange range = view.shard(p.elements, p.group, hop.shard_in(slot));
    shards.push_back({from + (hop.number == 0 ? range.begin : slot * shard), range.size()});
  }
  const auto parameter =
      static_cast<std::uint64_t>(op.layer + 1) * kParameterRoles + static_cast<std::uint64_t>(op.subject);
  const std::uint64_t draw =
      mix_bits(seed) ^ mix_bits(mix_bits(parameter) + 2 * static_cast<std::uint64_t>(hop.position) +
                                static_cast<std::uint64_t>(hop.number));
  const std::int64_t block = compressor_of(format).block(), blocks = (shard + block - 1) / block,
                     room = encoded_bytes(format, shard).value;
  return [=](Kernels& kernels, std::int64_t step) {
    const std::uint64_t of_pass =
        mix_bits(mix_bits(draw + static_cast<std::uint64_t>(step)) + static_cast<std::uint64_t>(micro_batch.value));
    for (std::int64_t slot = 0; slot < std::ssize(shards); ++slot) {
      const Vector& values = shards[static_cast<std::size_t>(slot)];
      if (values.size == 0) continue;
      const EncodedShards encoded{
          .format = format, .elements = shard, .bytes = {{codes + slot * room, ElementType::u8}, room}};
      kernels.encode(values, {}, {of_pass, slot * blocks}, encoded, nullptr);
    }
  };
}

BoundOperation bind_hop_merge(const RankView& view, const ParameterStates& parameters, const Operation& op,
                              MicroBatch micro_batch, Into into) {
  const ParameterState& p = parameters.of(op.layer, op.subject);
  const std::int64_t ranks = view.group_size(p.group), slots = op.key.dims[2];
  const GradientHop next{hop_of(view, p.group, op).inner, slots, 1, view.position_in(p.group)};
  std::int64_t elements = 0;  // of the shards that it adds up; behind the first that is not full come empty ones
  if (slots == 1) {
    elements = view.own_shard(p.elements, p.group).size();
  } else {
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      elements += view.shard(p.elements, p.group, next.shard_in(slot)).size();
    }
  }
  const ValueId summands = read_of(op, Operand::encoded);
  const EncodedShards encoded{.format = compression_of(op.key),
                              .elements = (p.elements + ranks - 1) / ranks,
                              .shards = slots,
                              .bytes = {view.data(summands, micro_batch), view.original().value(summands).elements()}};
  const Vector sum{view.data(write_of(op, Operand::gradient), micro_batch), elements};
  return [encoded, members = op.key.dims[3], sum, into](Kernels& kernels, std::int64_t) {
    kernels.decode_sum(encoded, members, sum, into);
  };
}

}  // namespace weft
