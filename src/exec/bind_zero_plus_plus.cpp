#include "exec/bind_zero_plus_plus.hpp"

#include "base/error.hpp"
#include "base/mix.hpp"
#include "compress/compressor.hpp"
#include "kernels/encode_on_host.hpp"

namespace weft {
namespace {

void require_processor(const RankView& view, const Operation& op) {
  if (view.memory().is_of_device()) fail("'{}': --compress has no kernels for GPUs yet", describe(op));
}

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

// Decodes into `to`, in whichever type it is; `into` says whether that is added to what is there.
void decode_sum(const RankView& view, const EncodedShards& encoded, std::int64_t summands, const Vector& to,
                Into into) {
  if (to.data.type == ElementType::fp32 && into == Into::overwrite) return decode_sum_on_host(encoded, summands, to);
  std::vector<float> sum(static_cast<std::size_t>(to.size));
  const ElementPointer data{reinterpret_cast<std::byte*>(sum.data()), ElementType::fp32};
  decode_sum_on_host(encoded, summands, {data, to.size});
  if (into == Into::add) {
    const std::vector<float> before = view.memory().read(to);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += before[i];
  }
  view.memory().write(sum, to);
}

GradientHop hop_of(const RankView& view, GroupKind group, const Operation& op) {
  const bool in_levels = view.plan().graph.classes[view.rank_class()].group(group).levels.size() == 2;
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
  require_processor(view, op);
  if (op.role == Role::param_encode) {
    return [&parameters, &p](Kernels& kernels, std::int64_t) {
      kernels.synchronize();
      parameters.encode_weights(p);
    };
  }
  const std::int64_t ranks = op.key.dims[2];
  const ValueId codes = read_of(op, Operand::encoded);
  const EncodedShards encoded{.format = compression_of(op.key),
                              .elements = (p.elements + ranks - 1) / ranks,
                              .shards = ranks,
                              .bytes = {view.data(codes, micro_batch), view.original().value(codes).elements()}};
  const Vector whole{view.data(write_of(op, Operand::weight), micro_batch), p.elements};
  return [&view, encoded, whole](Kernels& kernels, std::int64_t) {
    kernels.synchronize();
    decode_sum(view, encoded, 1, whole, Into::overwrite);
  };
}

BoundOperation bind_hop_encode(const RankView& view, const ParameterStates& parameters, std::uint64_t seed,
                               const Operation& op, MicroBatch micro_batch) {
  require_processor(view, op);
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
  const auto parameter = static_cast<std::uint64_t>(op.layer + 1) * kRoles + static_cast<std::uint64_t>(op.subject);
  const std::uint64_t draw =
      mix_bits(seed) ^ mix_bits(mix_bits(parameter) + 2 * static_cast<std::uint64_t>(hop.position) +
                                static_cast<std::uint64_t>(hop.number));
  return [&view, format, shards, codes, shard, draw, micro_batch](Kernels& kernels, std::int64_t step) {
    kernels.synchronize();
    const Compressor& compressor = compressor_of(format);
    const std::int64_t room = encoded_bytes(format, shard).value,
                       blocks = (shard + compressor.block() - 1) / compressor.block();
    const std::uint64_t of_pass =
        mix_bits(mix_bits(draw + static_cast<std::uint64_t>(step)) + static_cast<std::uint64_t>(micro_batch.value));
    std::vector<float> copied;
    for (std::size_t slot = 0; slot < shards.size(); ++slot) {
      const Vector& values = shards[slot];
      if (values.size == 0) continue;
      const bool in_fp32 = values.data.type == ElementType::fp32;
      if (!in_fp32) copied = view.memory().read(values);
      const std::span<const float> numbers = in_fp32 ? std::span<const float>(floats_of(values)) : copied;
      const auto number = static_cast<std::int64_t>(slot);
      encode(compressor, numbers, {of_pass, number * blocks},
             {codes + number * room, static_cast<std::size_t>(encoded_bytes(format, values.size).value)});
    }
  };
}

BoundOperation bind_hop_merge(const RankView& view, const ParameterStates& parameters, const Operation& op,
                              MicroBatch micro_batch, Into into) {
  require_processor(view, op);
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
  return [&view, encoded, members = op.key.dims[3], sum, into](Kernels& kernels, std::int64_t) {
    kernels.synchronize();
    decode_sum(view, encoded, members, sum, into);
  };
}

}  // namespace weft
