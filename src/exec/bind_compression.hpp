// Binds the encoding, adding up and decoding of gradients to a rank's memory.
#pragma once

#include "exec/bound_operation.hpp"
#include "exec/compression_errors.hpp"
#include "exec/parameter_state.hpp"

namespace weft {

// Returns whether it is one of these operations.
bool is_of_compression(const Operation& operation);
// `seed` is that of the run; encodings of gradients add to `errors`, which must outlive the result.
BoundOperation bind_compression(const RankView& view, const ParameterStates& parameters, std::uint64_t seed,
                                CompressionErrors& errors, const Operation& operation);

}  // namespace weft
