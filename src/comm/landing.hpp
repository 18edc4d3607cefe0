// Carries out a landing: bytes that have arrived, in segments, meet the segments that they are for.
#pragma once

#include <span>

#include "comm/transport.hpp"

namespace weft {

// `arrived` and landing.dst (and operand) have the same number of bytes in all, cut anywhere between elements.
void land(std::span<const Segment> arrived, const Landing& landing);

}  // namespace weft
