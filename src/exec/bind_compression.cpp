#include "exec/bind_compression.hpp"

#include <memory>

#include "base/mix.hpp"

namespace weft {
namespace {

// Returns a number of this encoding: data-parallel ranks round at random independently of each other, and those that
// hold copies of a tensor alike.
std::uint64_t place_of(const Operation& op, std::int64_t position) {
  const auto parameter =
      static_cast<std::uint64_t>(op.layer + 1) * kParameterRoles + static_cast<std::uint64_t>(op.subject);
  return mix_bits(mix_bits(parameter) + 2 * static_cast<std::uint64_t>(position) + (encodes_sum(op) ? 1 : 0));
}

}  // namespace

bool is_of_compression(const Operation& op) {
  return op.role == Role::grad_encode || op.role == Role::grad_merge || op.role == Role::grad_decode;
}

BoundOperation bind_compression(const RankView& view, const ParameterStates& parameters, std::uint64_t seed,
                                CompressionErrors& errors, const Operation& op) {
  const ParameterState& p = parameters.of(op.layer, op.subject);
  const std::int64_t position = view.position_in(p.group), shards = op.key.dims[2];
  const bool of_shard = op.key.dims[0] < p.elements;
  const auto gradient = [&](ValueId value) {
    return of_shard ? parameters.shard_in(p, value, kOncePerStep, position) : Vector{view.data(value), p.elements};
  };
  const bool encodes = op.role == Role::grad_encode;
  const ValueId bytes = encodes ? write_of(op, Operand::encoded) : read_of(op, Operand::encoded);
  const EncodedShards encoded{.format = compression_of(op.key),
                              .elements = (op.key.dims[0] + shards - 1) / shards,
                              .shards = shards,
                              .bytes = {view.data(bytes), view.original().value(bytes).elements()}};
  if (!encodes) {
    return [encoded, summands = op.key.dims[3], sum = gradient(write_of(op, Operand::gradient))](
               Kernels& kernels, std::int64_t) { kernels.decode_sum(encoded, summands, sum); };
  }
  const Vector values = gradient(read_of(op, Operand::gradient));
  const Vector held{view.data(read_of(op, Operand::compression_error)), values.size};
  const std::uint64_t draw = mix_bits(seed) ^ place_of(op, position);
  if (encodes_sum(op)) {
    return [=](Kernels& kernels, std::int64_t step) {
      kernels.encode(values, held, {mix_bits(draw + static_cast<std::uint64_t>(step))}, encoded, nullptr);
    };
  }
  const auto squares = std::make_shared<EncodedSquares>();  // of a step, between the kernel and its end
  return {[=](Kernels& kernels, std::int64_t step) {
            kernels.encode(values, held, {mix_bits(draw + static_cast<std::uint64_t>(step))}, encoded, squares.get());
          },
          [=, noted = &errors](Kernels&, std::int64_t step) { noted->add(step, squares->gradient, squares->error); }};
}

}  // namespace weft
