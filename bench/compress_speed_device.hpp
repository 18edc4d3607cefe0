// How fast a GPU encodes, decodes and adds up gradients, against copying the same floats in its memory.
#pragma once

#include "compress/compression_format.hpp"

namespace weft {

// Prints a line for the format, or for every format where it is `none`. Returns whether int8 reached `goal` of the
// copy's speed.
bool measure_device(CompressionFormat only, std::size_t mebibytes, double goal);

}  // namespace weft
