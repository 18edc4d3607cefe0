#include "base/element_type.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(ElementType, SizesInBytes) {
  EXPECT_EQ(size_of(ElementType::fp32), Bytes{4});
  EXPECT_EQ(size_of(ElementType::bf16), Bytes{2});
  EXPECT_EQ(size_of(ElementType::fp16), Bytes{2});
  EXPECT_EQ(size_of(ElementType::fp8), Bytes{1});
  EXPECT_EQ(size_of(ElementType::i32), Bytes{4});
  EXPECT_EQ(size_of(ElementType::i64), Bytes{8});
  EXPECT_EQ(size_of(ElementType::u8), Bytes{1});
}

TEST(ElementType, NamesAreReadBack) {
  for (const ElementType type : {ElementType::fp32, ElementType::bf16, ElementType::fp16, ElementType::fp8,
                                 ElementType::i32, ElementType::i64, ElementType::u8}) {
    EXPECT_EQ(parse_element_type(name_of(type)), type);
  }
  EXPECT_EQ(name_of(ElementType::bf16), "bf16");
  EXPECT_EQ(parse_element_type("f32"), ElementType::fp32);
  EXPECT_EQ(parse_element_type("f16"), ElementType::fp16);
  EXPECT_EQ(parse_element_type("fp64"), std::nullopt);
  EXPECT_EQ(parse_element_type(""), std::nullopt);
}

}  // namespace
}  // namespace weft
