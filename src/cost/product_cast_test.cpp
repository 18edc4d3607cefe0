#include "cost/product_cast.hpp"

#include <gtest/gtest.h>

#include "cost/kernel_time.hpp"

namespace weft {
namespace {

Operation product(Role role, Phase phase, ProductFormat format) {
  Operation op;
  op.role = role;
  op.phase = op.key.phase = phase;
  op.key.kind = OpKind::gemm;
  op.key.dims = {1024, 512, 256, 1, 0, 0};
  op.key.product = format;
  return op;
}

TEST(Casts, ReadAnElementAndWriteItByRowsAndByColumns) {
  const double input = 1024 * 256;
  const CastWork forward = cast_work(product(Role::ffn_out, Phase::forward, ProductFormat::fp8));
  EXPECT_EQ(forward.bytes, input * (2 + 1 + 1));
  EXPECT_EQ(forward.kernels, 1);
  EXPECT_EQ(cast_work(product(Role::qkv, Phase::input_grad, ProductFormat::fp8)).bytes, input * 4);
  // A norm writes what the product behind it reads, and a weight gradient finds both operands.
  EXPECT_EQ(cast_work(product(Role::qkv, Phase::forward, ProductFormat::fp8)).bytes, 0);
  EXPECT_EQ(cast_work(product(Role::qkv, Phase::weight_grad, ProductFormat::fp8)).kernels, 0);
  EXPECT_EQ(cast_work(product(Role::ffn_out, Phase::forward, ProductFormat::stored)).bytes, 0);
}

TEST(Casts, OfFp4LookForTheLargestElementFirst) {
  const CastWork forward = cast_work(product(Role::qkv, Phase::forward, ProductFormat::fp4));
  EXPECT_EQ(forward.bytes, 1024 * 256 * (2 + 2 + 2 * 0.5625));
  EXPECT_EQ(forward.kernels, 2);
}

// With equal shares of the peaks and free tiles, time goes with the peaks: 989, 1,979; 2,250, 4,500, 9,000.
TEST(RoundedProducts, TakeTheTimeOfTheirPeaks) {
  DeviceProfile reached;
  reached.matrix_efficiency = reached.fp8_efficiency = reached.fp4_efficiency = 0.5;
  reached.tile_startup = 0;
  const auto seconds = [&](const char* device, ProductFormat format) {
    return product_seconds(8192, 8192, 8192, 1, ElementType::bf16, device_profile(device), reached, format);
  };
  using enum ProductFormat;
  EXPECT_NEAR(seconds("h100", stored) / seconds("h100", fp8), 1979.0 / 989, 1e-9);
  EXPECT_NEAR(seconds("b200", stored) / seconds("b200", fp8), 2, 1e-9);
  EXPECT_NEAR(seconds("b200", stored) / seconds("b200", fp4), 4, 1e-9);
  // What starting a tile takes is no shorter in fp8: with an inner dimension as long as that, half of the rest is
  // saved.
  reached.tile_startup = 8192;
  EXPECT_NEAR(seconds("b200", stored) / seconds("b200", fp8), 2.0 / 1.5, 1e-9);
}

}  // namespace
}  // namespace weft
