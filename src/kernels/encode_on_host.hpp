// Encoding and decoding of gradients in memory of this processor. They take effect before they return: whoever calls
// them sees to it that kernels which wrote their operands have ended.
#pragma once

#include "kernels/arguments.hpp"

namespace weft {

// What an encoding was given, and what it has left for the next: sums of squares.
struct EncodedSquares {
  double gradient = 0, error = 0;
};

// Encodes gradient + errors, and leaves in `errors` what encoding takes away. Formats that round or choose at random
// draw from the seed.
EncodedSquares encode_on_host(const Vector& gradient, const Vector& errors, std::uint64_t seed,
                              const EncodedShards& encoded);
// sum = the sum of `summands` encoded tensors of its size, in their order.
void decode_sum_on_host(const EncodedShards& encoded, std::int64_t summands, const Vector& sum);

}  // namespace weft
