// Element-wise reductions of arrays, the arithmetic of collectives on CPU ranks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collective/semantics.hpp"

namespace weft {

// dst[i] = (a[i] op b[i]) * scale; average adds. dst may be a or b. fp16 and bf16 are widened to fp32, and the result
// rounded to nearest even. Integers are divided by 1/scale, toward zero.
void reduce_into(ElementType type, ReduceOp op, std::byte* dst, const std::byte* a, const std::byte* b,
                 std::int64_t elements, double scale = 1);

}  // namespace weft
