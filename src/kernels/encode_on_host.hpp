// Encoding and decoding of gradients in memory of this processor. They take effect before they return: whoever calls
// them sees to it that kernels which wrote their operands have ended.
#pragma once

#include "kernels/arguments.hpp"

namespace weft {

// As Kernels::encode() and decode_sum().
void encode_on_host(const Vector& values, const Vector& errors, const EncodingDraw& draw, const EncodedShards& encoded,
                    EncodedSquares* squares);
void decode_sum_on_host(const EncodedShards& encoded, std::int64_t summands, const Vector& sum, Into into);

}  // namespace weft
