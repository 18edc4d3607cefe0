// Which elements dropout keeps: a hash of a row's key and the column, in 32 bits, so that loops over columns vectorise.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/mix.hpp"

namespace weft::aten {

// Two multiplications between three shifts: a bijection in which every bit matters (Wellons 2018, "lowbias32").
inline std::uint32_t mix_word(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352dU;
  x = (x ^ (x >> 15)) * 0x846ca68bU;
  return x ^ (x >> 16);
}

class RowDropout {
 public:
  RowDropout(double rate, std::uint64_t key, std::int64_t row)
      : limit_(static_cast<std::uint32_t>(std::floor(rate * 0x1p32))), scale_(static_cast<float>(1 / (1 - rate))) {
    const std::uint64_t bits = mix_bits(key + static_cast<std::uint64_t>(row));
    low_ = static_cast<std::uint32_t>(bits);
    high_ = static_cast<std::uint32_t>(bits >> 32);
  }

  bool keeps(std::int64_t column) const {
    return mix_word(mix_word(static_cast<std::uint32_t>(column) * 0x9e3779b9U + low_) ^ high_) >= limit_;
  }
  float factor(std::int64_t column) const { return keeps(column) ? scale_ : 0.0F; }
  float scale() const { return scale_; }

 private:
  std::uint32_t limit_, low_, high_;
  float scale_;
};

}  // namespace weft::aten
