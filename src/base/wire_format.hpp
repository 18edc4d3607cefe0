// How elements travel: their type, and the scales of their blocks where they are compressed. This is the only function
// that knows the size of a transfer; building, cutting, verifying, pricing and executing transfers all call it.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/checked.hpp"
#include "base/element_type.hpp"

namespace weft {

struct WireFormat {
  ElementType type = ElementType::bf16;
  std::int32_t block = 0;  // consecutive elements that share a scale; 0: no scales
  ElementType scale = ElementType::fp32;
  friend bool operator==(const WireFormat&, const WireFormat&) = default;
};

// A block that is not full has a scale too. Throws Error naming `what` where the bytes do not fit in 63 bits.
inline Bytes wire_bytes(std::int64_t elements, const WireFormat& format, std::string_view what = "a transfer") {
  const std::int64_t plain = checked_product({elements, size_of(format.type).value}, what);
  if (format.block == 0) return {plain};
  const std::int64_t blocks = elements / format.block + (elements % format.block > 0 ? 1 : 0);
  return {checked_sum({plain, checked_product({blocks, size_of(format.scale).value}, what)}, what)};
}

}  // namespace weft
