// Binds encoding and decoding of gradients that are encoded between nodes only (graph/build/node_compression.cpp).
#pragma once

#include "exec/bound_operation.hpp"
#include "exec/compression_errors.hpp"
#include "exec/parameter_state.hpp"

namespace weft {

// Returns whether it encodes or decodes the shards that a member has of its node's sums. What it does with its own
// shard alone is bound like that of other compressed gradients.
bool is_of_node_shards(const RankView& view, const ParameterStates& parameters, const Operation& operation);
// Like bind_compression().
BoundOperation bind_node_shards(const RankView& view, const ParameterStates& parameters, std::uint64_t seed,
                                CompressionErrors& errors, const Operation& operation);

}  // namespace weft
