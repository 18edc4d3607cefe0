#include "comm/reduce_kernels.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.hpp"

namespace weft {

std::uint16_t bf16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);  // NaN stays NaN
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

float float_from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Rounds by arithmetic: adding and subtracting a power of two of the right size makes the FPU drop the extra bits, to
// nearest even, for subnormal results too.
std::uint16_t f16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000U) {
    half = 0x7e00U;
  } else if (magnitude >= 0x477ff000U) {  // 65520 and above round to infinity
    half = 0x7c00U;
  } else if (magnitude < 0x38800000U) {  // below 2^-14: subnormal, units of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    half = std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F);
  } else {
    half = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

float float_from_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t magnitude = bits & 0x7fffU;
  if (magnitude >= 0x7c00U) return std::bit_cast<float>(sign | (magnitude << 13) | 0x7f800000U);
  // Subnormals have value magnitude 2^-24; scaling by 2^112 moves the exponent bias of all others.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(scaled) | sign);
}

namespace {

struct F16 {
  using Stored = std::uint16_t;
  static float load(Stored bits) { return float_from_f16(bits); }
  static Stored store(float value) { return f16_from_float(value); }
};
struct Bf16 {
  using Stored = std::uint16_t;
  static float load(Stored bits) { return float_from_bf16(bits); }
  static Stored store(float value) { return bf16_from_float(value); }
};
template <class T>
struct Plain {
  using Stored = T;
  static T load(T value) { return value; }
  static T store(T value) { return value; }
};

template <class T>
T scaled(T value, double scale) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(value / static_cast<T>(std::llround(1 / scale)));
  } else {
    return static_cast<T>(value * static_cast<T>(scale));
  }
}

// Integer sums wrap around, so that the order of additions does not matter and overflow is defined.
template <class T>
T add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
  } else {
    return a + b;
  }
}

template <class Format, class Combine>
void loop(std::byte* dst, const std::byte* a, const std::byte* b, std::int64_t elements, Combine combine) {
  using Stored = typename Format::Stored;
  auto* to = reinterpret_cast<Stored*>(dst);
  const auto* left = reinterpret_cast<const Stored*>(a);
  const auto* right = reinterpret_cast<const Stored*>(b);
  for (std::int64_t i = 0; i < elements; ++i) {
    to[i] = Format::store(combine(Format::load(left[i]), Format::load(right[i])));
  }
}

template <class Format>
void reduce_as(ReduceOp op, std::byte* dst, const std::byte* a, const std::byte* b, std::int64_t elements,
               double scale) {
  using Value = decltype(Format::load({}));
  const bool scales = scale != 1;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      if (scales) {
        return loop<Format>(dst, a, b, elements, [scale](Value x, Value y) { return scaled(add(x, y), scale); });
      }
      return loop<Format>(dst, a, b, elements, [](Value x, Value y) { return add(x, y); });
    case ReduceOp::max:
      return loop<Format>(dst, a, b, elements, [](Value x, Value y) { return std::max(x, y); });
    case ReduceOp::min:
      return loop<Format>(dst, a, b, elements, [](Value x, Value y) { return std::min(x, y); });
  }
}

}  // namespace

void reduce_into(ElementType type, ReduceOp op, std::byte* dst, const std::byte* a, const std::byte* b,
                 std::int64_t elements, double scale) {
  switch (type) {
    case ElementType::fp32:
      return reduce_as<Plain<float>>(op, dst, a, b, elements, scale);
    case ElementType::fp16:
      return reduce_as<F16>(op, dst, a, b, elements, scale);
    case ElementType::bf16:
      return reduce_as<Bf16>(op, dst, a, b, elements, scale);
    case ElementType::i32:
      return reduce_as<Plain<std::int32_t>>(op, dst, a, b, elements, scale);
    case ElementType::i64:
      return reduce_as<Plain<std::int64_t>>(op, dst, a, b, elements, scale);
    case ElementType::fp8:
      break;
  }
  WEFT_CHECK(false && "no reduction of fp8: its blocks have scales");
}

}  // namespace weft
