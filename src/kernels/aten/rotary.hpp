// Rotary positions: the halves of a head are the two coordinates of as many planes, plane i turned by
// position / base^(2i / head_size).
#pragma once

#include <span>

#include "kernels/matrix.hpp"

namespace weft::aten {

// Cosines of all planes of a position, then its sines; position after position. Kept for the calling thread's next
// call.
std::span<const float> rotary_angles(double base, std::int64_t head_size, std::int64_t positions);

enum class Rotation : bool { forward, back };
// Row i of `from` stands at position first + i. `to` may be `from`.
void rotate(const Matrix& from, const Matrix& to, std::span<const float> angles, std::int64_t first, Rotation rotation);

}  // namespace weft::aten
