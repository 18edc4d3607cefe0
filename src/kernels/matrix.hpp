// What kernels work on: tensors in somebody else's memory. Slices of rows and columns are matrices again, so the parts
// of a partitioned operation call the same kernels as the whole.
#pragma once

#include <cstdint>
#include <span>

#include "base/element_type.hpp"

namespace weft {

struct Matrix {
  void* data = nullptr;
  std::int64_t rows = 0, columns = 0;
  std::int64_t stride = 0;  // elements from one row to the next
  ElementType type = ElementType::fp32;

  static Matrix dense(void* data, std::int64_t rows, std::int64_t columns) { return {data, rows, columns, columns}; }
  Matrix row_slice(std::int64_t begin, std::int64_t end) const {
    return {static_cast<float*>(data) + begin * stride, end - begin, columns, stride, type};
  }
  Matrix column_slice(std::int64_t begin, std::int64_t end) const {
    return {static_cast<float*>(data) + begin, rows, end - begin, stride, type};
  }
  bool empty() const { return data == nullptr; }
};

// One row: biases, gains, flat parameters. Its elements follow each other.
struct Vector {
  void* data = nullptr;
  std::int64_t size = 0;
  ElementType type = ElementType::fp32;
  bool empty() const { return data == nullptr; }
};

// What becomes of the memory that a kernel writes to.
enum class Into : std::uint8_t { overwrite, add };

using Tokens = std::span<const std::int64_t>;

}  // namespace weft
