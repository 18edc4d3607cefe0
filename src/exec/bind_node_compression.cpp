#include "exec/bind_node_compression.hpp"

#include <memory>

#include "base/error.hpp"
#include "base/mix.hpp"
#include "exec/bind_compression.hpp"

namespace weft {
namespace {

// One of the shards: where it lies in the memory of the whole gradient, its errors, and its codes.
struct NodeShard {
  Vector values, errors;
  EncodedShards encoded;
  std::uint64_t draw = 0;
};

}  // namespace

bool is_of_node_shards(const RankView& view, const ParameterStates& parameters, const Operation& op) {
  if (!view.plan().layout.compress.between_nodes || !is_of_compression(op)) return false;
  const ParameterState& p = parameters.of(op.layer, op.subject);
  const std::int64_t n = view.group_size(p.group), shard = (p.elements + n - 1) / n;
  return op.key.dims[0] > shard && op.key.dims[0] < p.elements;
}

BoundOperation bind_node_shards(const RankView& view, const ParameterStates& parameters, std::uint64_t seed,
                                CompressionErrors& errors, const Operation& op) {
  const ParameterState& p = parameters.of(op.layer, op.subject);
  const CompressionFormat format = compression_of(op.key);
  const bool encodes = op.role == Role::grad_encode;
  const ValueId codes = encodes ? write_of(op, Operand::encoded) : read_of(op, Operand::encoded);
  const std::int64_t nodes = op.key.dims[2], room = encoded_bytes(format, op.key.dims[0] / nodes).value;
  const std::int64_t bytes = view.original().value(codes).elements();
  const ElementPointer whole = view.data(p.gradient);
  const std::vector<ElementRange> ranges = parameters.node_shards(p);
  WEFT_CHECK(std::ssize(ranges) == nodes);
  const auto parameter =
      static_cast<std::uint64_t>(op.layer + 1) * kParameterRoles + static_cast<std::uint64_t>(op.subject);
  std::vector<NodeShard> shards;
  for (std::int64_t node = 0; node < nodes; ++node) {
    const ElementRange range = ranges[static_cast<std::size_t>(node)];
    NodeShard shard;
    shard.values = {whole + range.begin, range.size()};
    if (encodes) {
      shard.errors = {view.data(p.gradient_error) + node * (op.key.dims[0] / nodes), range.size()};
    }
    // Of summands that lie one after the other, this shard of each.
    const std::int64_t apart = encodes ? 1 : nodes;
    shard.encoded = {format, op.key.dims[0] / nodes, apart, {view.data(codes) + node * room, bytes - node * room}};
    shard.draw = mix_bits(seed) ^ mix_bits(mix_bits(parameter) + 2 * static_cast<std::uint64_t>(range.begin) +
                                           (mix_bits(static_cast<std::uint64_t>(view.position_in(p.group))) << 1));
    shards.push_back(shard);
  }
  std::vector<BoundOperation> pieces;
  for (const NodeShard& shard : shards) {
    if (!encodes) {
      pieces.emplace_back([shard, summands = op.key.dims[3]](Kernels& kernels, std::int64_t) {
        kernels.decode_sum(shard.encoded, summands, shard.values, Into::overwrite);
      });
      continue;
    }
    const auto squares = std::make_shared<EncodedSquares>();  // of a step, between the kernel and its end
    pieces.emplace_back(
        [shard, squares](Kernels& kernels, std::int64_t step) {
          const EncodingDraw draw{mix_bits(shard.draw + static_cast<std::uint64_t>(step))};
          kernels.encode(shard.values, shard.errors, draw, shard.encoded, squares.get());
        },
        [squares, noted = &errors](Kernels&, std::int64_t step) {
          noted->add(step, squares->gradient, squares->error);
        });
  }
  return BoundOperation::join(std::move(pieces));
}

}  // namespace weft
