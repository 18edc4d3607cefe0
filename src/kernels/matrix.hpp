// Tensors in memory that belongs to others. Slices of rows and columns are matrices again, so the parts of a
// partitioned operation call the same kernels as the whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/element_type.hpp"
#include "base/error.hpp"

namespace weft {

// The address of elements of a type. Only kernels dereference it, because the memory may be a device's.
struct ElementPointer {
  std::byte* address = nullptr;
  ElementType type = ElementType::fp32;

  ElementPointer() = default;
  ElementPointer(std::byte* where, ElementType what) : address(where), type(what) {}
  ElementPointer(float* where) : address(reinterpret_cast<std::byte*>(where)) {}
  ElementPointer operator+(std::int64_t elements) const { return {address + elements * size_of(type).value, type}; }
  friend bool operator==(const ElementPointer&, const ElementPointer&) = default;
};

// Elements that follow each other: biases, gains, flat parameters, a row.
struct Vector {
  ElementPointer data;
  std::int64_t size = 0;

  Vector slice(std::int64_t begin, std::int64_t end) const { return {data + begin, end - begin}; }
  Bytes bytes() const { return size * size_of(data.type); }
  bool empty() const { return data.address == nullptr; }
};

struct Matrix {
  ElementPointer data;
  std::int64_t rows = 0, columns = 0;
  Bytes row_stride;  // from one row to the next

  Matrix() = default;
  Matrix(ElementPointer first, std::int64_t row_count, std::int64_t column_count, Bytes stride)
      : data(first), rows(row_count), columns(column_count), row_stride(stride) {}
  static Matrix dense(ElementPointer data, std::int64_t rows, std::int64_t columns) {
    return {data, rows, columns, columns * size_of(data.type)};
  }
  Vector row(std::int64_t index) const { return {{data.address + index * row_stride.value, data.type}, columns}; }
  Matrix row_slice(std::int64_t begin, std::int64_t end) const {
    return {row(begin).data, end - begin, columns, row_stride};
  }
  Matrix column_slice(std::int64_t begin, std::int64_t end) const {
    return {data + begin, rows, end - begin, row_stride};
  }
  bool empty() const { return data.address == nullptr; }
};

// Views of memory that this processor reads and writes.
inline std::span<float> floats_of(const Vector& x) {
  WEFT_CHECK(x.data.type == ElementType::fp32);
  return {reinterpret_cast<float*>(x.data.address), static_cast<std::size_t>(x.size)};
}

// What happens to the old contents of the memory that a kernel writes.
enum class Into : std::uint8_t { overwrite, add };

using Tokens = std::span<const std::int64_t>;

}  // namespace weft
