#include "comm/reduce_kernels.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/half_float.hpp"

namespace weft {

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
    case ElementType::u8:
      break;
  }
  WEFT_CHECK(false && "no reduction of fp8 or encoded bytes: their blocks have scales");
}

}  // namespace weft
