#include "comm/reduce_kernels.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/half_float.hpp"

namespace weft {
namespace {

// The nearest fp16 by search over all of them: the definition, not the method.
std::uint16_t nearest_f16(float value) {
  std::uint16_t best = 0;
  double best_distance = std::numeric_limits<double>::infinity();
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const double distance =
        std::abs(std::abs(static_cast<double>(value)) - float_from_f16(static_cast<std::uint16_t>(bits)));
    const bool even = (bits & 1) == 0;
    if (distance < best_distance || (distance == best_distance && even)) {
      best = static_cast<std::uint16_t>(bits);
      best_distance = distance;
    }
  }
  return static_cast<std::uint16_t>(best | (std::signbit(value) ? 0x8000 : 0));
}

TEST(F16, EveryValueSurvivesTheRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    if ((half & 0x7fff) > 0x7c00) continue;  // NaN
    EXPECT_EQ(f16_from_float(float_from_f16(half)), half) << bits;
  }
}

TEST(F16, KnownValues) {
  EXPECT_EQ(f16_from_float(1.0F), 0x3c00);
  EXPECT_EQ(f16_from_float(-2.0F), 0xc000);
  EXPECT_EQ(f16_from_float(65504.0F), 0x7bff);
  EXPECT_EQ(f16_from_float(65520.0F), 0x7c00);
  EXPECT_EQ(f16_from_float(0x1p-24F), 0x0001);
  EXPECT_EQ(float_from_f16(0x0400), 0x1p-14F);
  EXPECT_TRUE(std::isnan(float_from_f16(f16_from_float(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(F16, RoundsToNearestEven) {
  for (const float value : {1.0F + 0x1p-11F, 1.0F + 3 * 0x1p-11F, 1.0009F, 0x1.8p-25F, 0x1p-25F, 3.3e-6F, 6.1e-5F,
                            -777.7F, 2049.0F, 2051.0F, 65519.0F}) {
    EXPECT_EQ(f16_from_float(value), nearest_f16(value)) << value;
  }
}

TEST(Bf16, RoundsToNearestEven) {
  // 8 bits of precision: 1 + 2^-8 lies between 1 and 1 + 2^-7; the even one is 1.
  EXPECT_EQ(bf16_from_float(1.0F + 0x1p-8F), 0x3f80);
  EXPECT_EQ(bf16_from_float(1.0F + 3 * 0x1p-8F), 0x3f82);
  EXPECT_EQ(bf16_from_float(1.0F + 0x1.1p-8F), 0x3f81);
  EXPECT_EQ(float_from_bf16(0xc000), -2.0F);
  EXPECT_TRUE(std::isnan(float_from_bf16(bf16_from_float(std::numeric_limits<float>::quiet_NaN()))));
}

template <class T>
std::vector<T> reduced(ElementType type, ReduceOp op, std::vector<T> a, std::vector<T> b, double scale = 1) {
  reduce_into(type, op, reinterpret_cast<std::byte*>(a.data()), reinterpret_cast<const std::byte*>(a.data()),
              reinterpret_cast<const std::byte*>(b.data()), std::ssize(a), scale);
  return a;
}

TEST(ReduceInto, EveryOperationOnIntegersAndFloats) {
  EXPECT_EQ(reduced<float>(ElementType::fp32, ReduceOp::sum, {1, -2}, {3, 5}), (std::vector<float>{4, 3}));
  EXPECT_EQ(reduced<float>(ElementType::fp32, ReduceOp::average, {1, -2}, {3, 5}, 0.5), (std::vector<float>{2, 1.5}));
  EXPECT_EQ(reduced<std::int32_t>(ElementType::i32, ReduceOp::max, {1, -2}, {3, -5}),
            (std::vector<std::int32_t>{3, -2}));
  EXPECT_EQ(reduced<std::int64_t>(ElementType::i64, ReduceOp::min, {1LL << 40, -2}, {3, -5}),
            (std::vector<std::int64_t>{3, -5}));
  EXPECT_EQ(reduced<std::int32_t>(ElementType::i32, ReduceOp::average, {-4, 7}, {-3, 1}, 1.0 / 3),
            (std::vector<std::int32_t>{-2, 2}));
  // Sums wrap, as they do on every other machine.
  EXPECT_EQ(reduced<std::int32_t>(ElementType::i32, ReduceOp::sum, {2147483647}, {1}),
            (std::vector<std::int32_t>{-2147483647 - 1}));
}

TEST(ReduceInto, NarrowFloatsAreAddedWide) {
  const auto half = [](float value) { return f16_from_float(value); };
  // 2048 + 1 is not an fp16; the sum rounds to even.
  EXPECT_EQ(reduced<std::uint16_t>(ElementType::fp16, ReduceOp::sum, {half(2048), half(1)}, {half(1), half(2)}),
            (std::vector<std::uint16_t>{half(2048), half(3)}));
  EXPECT_EQ(reduced<std::uint16_t>(ElementType::bf16, ReduceOp::sum, {bf16_from_float(1)}, {bf16_from_float(0.5F)}),
            (std::vector<std::uint16_t>{bf16_from_float(1.5F)}));
}

}  // namespace
}  // namespace weft
