// Stretches of memory that a transfer reads and writes.
#pragma once

#include <vector>

#include "base/error.hpp"
#include "base/wire_format.hpp"
#include "comm/communicator.hpp"
#include "exec/expert_row_ranges.hpp"
#include "kernels/matrix.hpp"

namespace weft {

// What runs travels as it lies in memory.
inline Segment segment_of(const ElementPointer& data, std::int64_t elements) {
  return {data.address, wire_bytes(elements, {data.type}).value};
}

inline Segment segment_of(std::vector<ElementRange>& table) {
  return {reinterpret_cast<std::byte*>(table.data()), static_cast<std::int64_t>(table.size() * sizeof(ElementRange))};
}

// What is compressed on the way has no kernel yet; elsewhere elements lie side by side.
inline std::int64_t elements_in(Bytes bytes, const WireFormat& format) {
  WEFT_CHECK(format.block == 0);
  return bytes.value / size_of(format.type).value;
}

inline std::int64_t elements_in(const std::vector<Segment>& segments, const WireFormat& format) {
  Bytes bytes;
  for (const Segment& segment : segments) bytes.value += segment.bytes;
  return elements_in(bytes, format);
}

// Returns whether tokens or their gradients go from the experts back: the way that they came is known.
inline bool returns_rows(const Operation& exchange) {
  return (exchange.role == Role::expert_combine) == (exchange.phase != Phase::input_grad);
}

}  // namespace weft
