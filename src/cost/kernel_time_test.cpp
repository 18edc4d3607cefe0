#include "cost/kernel_time.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace weft {
namespace {

Device a100() {
  return device_profile("a100-80");
}

DeviceProfile bare() {
  DeviceProfile reached;
  reached.matrix_efficiency = 1;
  reached.tile_startup = 0;
  reached.kernel_gap = Nanos{0};
  return reached;
}

// 108 tiles of 128 x 256 are one wave on 108 units; one row of tiles more is a second wave, mostly empty.
TEST(Products, TakeWholeWavesOfTiles) {
  const auto seconds = [](std::int64_t rows) {
    return product_seconds(rows, 256, 1 << 16, 1, ElementType::bf16, a100(), bare());
  };
  const double wave = 2.0 * 128 * 256 * (1 << 16) * 108 / 312e12;
  EXPECT_NEAR(seconds(108 * 128), wave, 1e-12);
  EXPECT_GT(seconds(108 * 128 + 1), 1.2 * wave);
  EXPECT_LE(seconds(108 * 128 + 1), 2 * wave + 1e-12);
  EXPECT_NEAR(seconds(2 * 108 * 128), 2 * wave, 1e-12);
}

TEST(Products, FewTilesAreSplitAlongTheInnerDimension) {
  // One tile alone would leave 107 units idle.
  const double alone = 2.0 * 128 * 256 * (1 << 16) / (312e12 / 108);
  EXPECT_LT(product_seconds(128, 256, 1 << 16, 1, ElementType::bf16, a100(), bare()), 0.3 * alone);
}

TEST(Products, StartingATileCostsInnerElements) {
  DeviceProfile reached = bare();
  const double without = product_seconds(108 * 128, 256, 1024, 1, ElementType::bf16, a100(), reached);
  reached.tile_startup = 1024;
  EXPECT_NEAR(product_seconds(108 * 128, 256, 1024, 1, ElementType::bf16, a100(), reached), 2 * without, 1e-12);
}

// LLMCompass measured single products on an A100 (fp16): rows, columns = inner, milliseconds. Alone they run at a
// higher clock than in training, so the efficiency is that of the largest of them, 293 of 312 TFLOP/s; what is
// compared is how time falls off with size.
TEST(Products, FollowMeasuredA100Products) {
  struct Measured {
    std::int64_t rows, width;
    double ms;
  };
  const std::vector<Measured> points{{256, 12288, 0.3185},    {512, 12288, 0.6118},  {1024, 12288, 1.1990},
                                     {2048, 12288, 2.3586},   {4096, 12288, 4.4576}, {8192, 12288, 8.6216},
                                     {16384, 12288, 17.0307}, {8192, 2048, 0.2818},  {8192, 4096, 1.0210},
                                     {8192, 8192, 3.9614},    {8192, 16384, 15.0087}};
  DeviceProfile reached = bare();
  reached.matrix_efficiency = 293.0 / 312;
  reached.tile_startup = 64;
  const double host = 25e-6;  // they waited for each product: what 8192 x 64 x 64 takes, almost
  for (const Measured& m : points) {
    const double seconds = host + product_seconds(m.rows, m.width, m.width, 1, ElementType::fp16, a100(), reached);
    EXPECT_NEAR(seconds * 1e3 / m.ms, 1.0, 0.08) << m.rows << " x " << m.width;
  }
}

OpKey attention(Phase phase, bool flash) {
  OpKey key;
  key.kind = OpKind::attention;
  key.phase = phase;
  key.causal_half = flash;
  key.dims = {4, 8, 2048, 2048, 96, 96};
  return key;
}

// Unfused attention moves the score matrix at least six times forward: each product once, softmax and dropout in and
// out.
TEST(Attention, UnfusedTakesAtLeastTheTrafficOfItsScores) {
  DeviceProfile reached = bare();
  reached.memory_efficiency = 1;
  const double scores = 2.0 * 4 * 8 * 2048 * 2048;
  const double bandwidth = a100().memory_bandwidth.bytes_per_second;
  EXPECT_GE(kernel_seconds(attention(Phase::forward, false), a100(), reached), 6 * scores / bandwidth);
  EXPECT_GT(kernel_seconds(attention(Phase::input_grad, false), a100(), reached),
            kernel_seconds(attention(Phase::forward, false), a100(), reached));
}

TEST(Attention, FusedIsFasterAndIsIssuedInFewerKernels) {
  for (const Phase phase : {Phase::forward, Phase::input_grad}) {
    EXPECT_LT(kernel_seconds(attention(phase, true), a100(), bare()),
              kernel_seconds(attention(phase, false), a100(), bare()));
    EXPECT_LT(kernel_count(attention(phase, true)), kernel_count(attention(phase, false)));
  }
}

TEST(Kernels, StreamingOnesMoveTheirBytesAtTheReachedBandwidth) {
  DeviceProfile reached = bare();
  reached.memory_efficiency = 0.5;
  reached.kernel_gap = Nanos{1000};
  OpKey key;
  key.kind = OpKind::elementwise;
  key.dims = {1 << 20, 4, 0, 0, 0, 0};
  const double expected = 4.0 * (1 << 20) / (0.5 * a100().memory_bandwidth.bytes_per_second) + 1e-6;
  EXPECT_NEAR(kernel_seconds(key, a100(), reached), expected, 1e-15);
}

}  // namespace
}  // namespace weft
