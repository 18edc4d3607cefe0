#include "kernels/matrix.hpp"

#include <gtest/gtest.h>

#include <array>

namespace weft {
namespace {

TEST(Matrix, SlicesLieWhereTheirFirstElementDoes) {
  std::array<std::byte, 5 * 7 * 8> memory{};
  for (const ElementType type : {ElementType::fp32, ElementType::bf16, ElementType::fp8, ElementType::i64}) {
    const std::int64_t size = size_of(type).value;
    const Matrix whole = Matrix::dense({memory.data(), type}, 5, 7);
    EXPECT_EQ(whole.row_stride, Bytes{7 * size});
    const Matrix part = whole.row_slice(1, 4).column_slice(2, 6);
    EXPECT_EQ(part.rows, 3);
    EXPECT_EQ(part.columns, 4);
    EXPECT_EQ(part.row_stride, whole.row_stride);
    EXPECT_EQ(part.data, (ElementPointer{memory.data() + (1 * 7 + 2) * size, type})) << name_of(type);
    const Vector row = part.row(2);
    EXPECT_EQ(row.data, (ElementPointer{memory.data() + (3 * 7 + 2) * size, type})) << name_of(type);
    EXPECT_EQ(row.bytes(), Bytes{4 * size});
    EXPECT_EQ(row.slice(1, 3).data, row.data + 1);
    EXPECT_EQ(row.slice(1, 3).size, 2);
  }
}

TEST(Matrix, IsEmptyWithoutMemory) {
  EXPECT_TRUE(Matrix{}.empty());
  EXPECT_TRUE(Vector{}.empty());
  float element = 0;
  EXPECT_FALSE((Vector{&element, 1}).empty());
}

TEST(VectorDeathTest, OfAnotherTypeIsNotReadAsFloats) {
  std::array<std::byte, 8> memory{};
  EXPECT_DEATH(floats_of({{memory.data(), ElementType::bf16}, 4}), "fp32");
}

}  // namespace
}  // namespace weft
