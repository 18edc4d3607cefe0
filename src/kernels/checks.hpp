// What callers of kernels promise of their operands, checked before a kernel is called.
#pragma once

#include "base/error.hpp"
#include "kernels/kernel_table.hpp"

namespace weft {

// The module's kernels, set to the caller's number of threads. Throws Error where there are none.
const KernelTable& loaded_kernels();

// Of the one type that kernels have as yet; rows do not overlap and begin at whole elements.
inline bool is_matrix(const Matrix& x) {
  const Bytes element = size_of(ElementType::fp32);
  return x.rows >= 0 && x.columns >= 0 && (x.row_stride >= x.columns * element || x.rows <= 1) &&
         x.row_stride.value % element.value == 0 && (!x.empty() || x.rows * x.columns == 0) &&
         x.data.type == ElementType::fp32;
}
inline void check_shape(const Matrix& x, std::int64_t rows, std::int64_t columns) {
  WEFT_CHECK(is_matrix(x));
  WEFT_CHECK(x.rows == rows);
  WEFT_CHECK(x.columns == columns);
}
inline void check_size(const Vector& x, std::int64_t size) {
  WEFT_CHECK(x.data.type == ElementType::fp32);
  WEFT_CHECK(x.size == size);
}
inline void check_optional(const Vector& x, std::int64_t size) {
  if (!x.empty()) check_size(x, size);
}

}  // namespace weft
