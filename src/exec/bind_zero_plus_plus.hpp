// Binds what ZeRO++ adds to ZeRO 2 and 3 to a rank's memory: parameters that are kept for backward or gathered encoded,
// and the two ends of a hop of encoded gradients.
#pragma once

#include "exec/bound_operation.hpp"
#include "exec/parameter_state.hpp"

namespace weft {

// Returns whether it encodes, decodes or keeps parameters.
bool is_of_gathered_weights(const Operation& operation);
BoundOperation bind_gathered_weights(const RankView& view, const ParameterStates& parameters,
                                     const Operation& operation, MicroBatch micro_batch);

// Shards of a rank's gradient on their way: which they are, and in which order a hop encodes them. In two hops, shard
// h * inner + j goes to member j of the node first, and from there to node h.
struct GradientHop {
  std::int64_t inner = 1, outer = 1;  // members of a node, and nodes
  std::int64_t number = 0;            // 0: the first hop
  std::int64_t position = 0;          // of this rank in the group

  std::int64_t slots() const { return number == 0 ? inner * outer : outer; }
  // Returns the shard in a slot of what is encoded.
  std::int64_t shard_in(std::int64_t slot) const {
    return number == 0 ? slot % outer * inner + slot / outer : slot * inner + position % inner;
  }
};

// `seed` is that of the run.
BoundOperation bind_hop_encode(const RankView& view, const ParameterStates& parameters, std::uint64_t seed,
                               const Operation& operation, MicroBatch micro_batch);
BoundOperation bind_hop_merge(const RankView& view, const ParameterStates& parameters, const Operation& operation,
                              MicroBatch micro_batch, Into into);

}  // namespace weft
