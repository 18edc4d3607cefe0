// Integer arithmetic on sizes that users give: an overflow is bad input, not undefined behaviour.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "base/error.hpp"

namespace weft {

// Both throw Error naming `what` where the result does not fit in 63 bits.
inline std::int64_t checked_product(std::initializer_list<std::int64_t> factors, std::string_view what) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) fail("{}: the size does not fit in 63 bits", what);
  }
  return product;
}

inline std::int64_t checked_sum(std::initializer_list<std::int64_t> terms, std::string_view what) {
  std::int64_t sum = 0;
  for (const std::int64_t term : terms) {
    if (__builtin_add_overflow(sum, term, &sum)) fail("{}: the size does not fit in 63 bits", what);
  }
  return sum;
}

}  // namespace weft
