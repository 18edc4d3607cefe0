// Which elements dropout keeps: a hash of a row's key and the column, in 32 bits, so that loops over columns vectorise.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/mix.hpp"

namespace weft {

// Two multiplications between three shifts: a bijection in which every bit matters (Wellons 2018, "lowbias32").
constexpr std::uint32_t mix_word(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352dU;
  x = (x ^ (x >> 15)) * 0x846ca68bU;
  return x ^ (x >> 16);
}

// What all rows of one draw share.
struct DropoutRule {
  std::uint32_t limit = 0;
  float scale = 1;
  std::uint64_t key = 0;

  DropoutRule() = default;
  DropoutRule(double rate, std::uint64_t draw_key)
      : limit(static_cast<std::uint32_t>(std::floor(rate * 0x1p32))),
        scale(static_cast<float>(1 / (1 - rate))),
        key(draw_key) {}
};

// Constant expressions, so that kernels of a device share them.
class RowDropout {
 public:
  constexpr RowDropout(const DropoutRule& rule, std::int64_t row) : limit_(rule.limit), scale_(rule.scale) {
    const std::uint64_t bits = mix_bits(rule.key + static_cast<std::uint64_t>(row));
    low_ = static_cast<std::uint32_t>(bits);
    high_ = static_cast<std::uint32_t>(bits >> 32);
  }

  constexpr bool keeps(std::int64_t column) const {
    return mix_word(mix_word(static_cast<std::uint32_t>(column) * 0x9e3779b9U + low_) ^ high_) >= limit_;
  }
  constexpr float factor(std::int64_t column) const { return keeps(column) ? scale_ : 0.0F; }
  constexpr float scale() const { return scale_; }

 private:
  std::uint32_t limit_, low_ = 0, high_ = 0;
  float scale_;
};

}  // namespace weft
