#include "base/wire_format.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(WireFormat, PlainElementsTakeTheirSize) {
  EXPECT_EQ(wire_bytes(10, {ElementType::bf16}), Bytes{20});
  EXPECT_EQ(wire_bytes(10, {ElementType::fp32}), Bytes{40});
  EXPECT_EQ(wire_bytes(0, {ElementType::fp32}), Bytes{0});
}

// DeepSeek-V3 (section 3.3.2): a byte for every element and four for every 128 of them.
TEST(WireFormat, EveryBlockHasAScaleAndSoHasTheLastOneThatIsNotFull) {
  const WireFormat format{ElementType::fp8, 128, ElementType::fp32};
  EXPECT_EQ(wire_bytes(0, format), Bytes{0});
  EXPECT_EQ(wire_bytes(1, format), Bytes{1 + 4});
  EXPECT_EQ(wire_bytes(128, format), Bytes{128 + 4});
  EXPECT_EQ(wire_bytes(129, format), Bytes{129 + 8});
  EXPECT_EQ(wire_bytes(7168, format), Bytes{7168 + 56 * 4});
  EXPECT_EQ(wire_bytes(256, {ElementType::fp8, 32, ElementType::fp8}), Bytes{256 + 8});
}

TEST(WireFormat, SizesThatDoNotFitAreRefused) {
  EXPECT_THROW(wire_bytes(std::int64_t{1} << 61, {ElementType::fp32}), Error);
  EXPECT_THROW(wire_bytes((std::int64_t{1} << 62) + ((std::int64_t{1} << 62) - 1), {ElementType::fp8, 1}), Error);
}

}  // namespace
}  // namespace weft
