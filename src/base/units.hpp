// Quantities as types: bytes and nanoseconds never mix by accident, and simulated time is exact.
#pragma once

#include <compare>
#include <cstdint>

namespace weft {

// An int64 count of something. Tag makes Bytes and Nanos different types; there is no implicit conversion.
template <class Tag>
struct Quantity {
  std::int64_t value = 0;

  friend constexpr auto operator<=>(Quantity, Quantity) = default;
  constexpr Quantity& operator+=(Quantity other) {
    value += other.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    value -= other.value;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return {a.value + b.value}; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return {a.value - b.value}; }
  friend constexpr Quantity operator*(Quantity a, std::int64_t k) { return {a.value * k}; }
  friend constexpr Quantity operator*(std::int64_t k, Quantity a) { return {a.value * k}; }
};

using Bytes = Quantity<struct BytesTag>;
using Nanos = Quantity<struct NanosTag>;

constexpr double seconds(Nanos t) {
  return static_cast<double>(t.value) * 1e-9;
}

// Floating point, because FLOP counts of a step of a trillion-parameter model exceed int64 and no decision needs their
// last digit.
struct Flops {
  double value = 0;
  friend constexpr auto operator<=>(Flops, Flops) = default;
  friend constexpr Flops operator+(Flops a, Flops b) { return {a.value + b.value}; }
  friend constexpr Flops operator*(double k, Flops a) { return {k * a.value}; }
};

struct Bandwidth {
  double bytes_per_second = 0;
  friend constexpr auto operator<=>(Bandwidth, Bandwidth) = default;
};

// Rounds to the nearest nanosecond. A positive duration never becomes zero, so events keep their order. More than 31
// years become 31 years, so that sums of such times still fit.
constexpr Nanos nanos_from_seconds(double s) {
  if (!(s > 0)) return {0};
  if (s > 1e9) return {1'000'000'000'000'000'000};
  const auto rounded = static_cast<std::int64_t>(s * 1e9 + 0.5);
  return {rounded > 0 ? rounded : 1};
}

}  // namespace weft
