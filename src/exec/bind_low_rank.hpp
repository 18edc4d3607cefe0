// Binds the steps of PowerSGD (compress/low_rank.hpp) to a rank's memory.
#pragma once

#include "exec/bound_operation.hpp"
#include "exec/compression_errors.hpp"
#include "exec/parameter_state.hpp"

namespace weft {

// `seed` is that of the run; the last step adds to `errors`, which must outlive the result.
BoundOperation bind_low_rank(const RankView& view, const ParameterStates& parameters, std::uint64_t seed,
                             CompressionErrors& errors, const Operation& operation);

}  // namespace weft
