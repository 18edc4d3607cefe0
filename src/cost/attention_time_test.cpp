// Fused attention by size, against published figures.
#include "cost/attention_time.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "cost/kernel_time.hpp"

namespace weft {
namespace {

constexpr std::array<std::int64_t, 6> kLengths{512, 1024, 2048, 4096, 8192, 16384};

Device hopper_device() {
  return device_profile("h100");
}

OpKey fused_attention(std::int64_t tokens, std::int64_t head, Phase phase, std::int64_t sequences, std::int64_t heads) {
  return {.kind = OpKind::attention,
          .phase = phase,
          .causal_half = true,
          .dims = {sequences, heads, tokens, tokens, head, head}};
}

// Figures 5 and 6 of Shah et al. 2024, TFLOP/s of causal forward on an H100: 16,384 tokens in a batch, hidden 2,048.
struct PublishedRates {
  const char* kernel;
  std::int64_t head;
  std::array<double, 6> tflops;
};
constexpr std::array kPublishedForward{PublishedRates{"FlashAttention-2", 64, {180, 229, 262, 284, 295, 299}},
                                       PublishedRates{"FlashAttention-2", 128, {191, 260, 298, 319, 333, 335}},
                                       PublishedRates{"FlashAttention-2", 256, {208, 251, 278, 293, 297, 298}},
                                       PublishedRates{"cuDNN", 128, {315, 410, 484, 518, 529, 539}},
                                       PublishedRates{"FlashAttention-3", 128, {292, 423, 521, 579, 602, 616}}};

// One factor for each kernel (its rate at 4,096 tokens and heads of 128) explains all lengths and sizes of heads.
TEST(AttentionShare, IsThatOfPublishedKernelsByLengthAndHead) {
  double sum = 0;
  int count = 0;
  for (const PublishedRates& measured : kPublishedForward) {
    const auto share = [&](std::size_t i, std::int64_t head) {
      return attention_share(fused_attention(kLengths[i], head, Phase::forward, 16384 / kLengths[i], 2048 / head),
                             hopper_device());
    };
    const double reference = std::string(measured.kernel) == "FlashAttention-2" ? 319 : measured.tflops[3];
    for (std::size_t i = 0; i < kLengths.size(); ++i) {
      const double error = reference * share(i, measured.head) / share(3, 128) / measured.tflops[i] - 1;
      EXPECT_LE(std::abs(error), i == 0 ? 0.31 : 0.12)
          << fmt::format("{}, head {}, {} tokens", measured.kernel, measured.head, kLengths[i]);
      sum += std::abs(error);
      ++count;
    }
  }
  EXPECT_LE(sum / count, 0.04);
}

// FlashAttention-2 without a mask, figure 6: 318 of 370 backward and forward at 8,192 tokens, 322 of 370 at 16,384.
TEST(AttentionShare, OfBackwardIsBelowThatOfForward) {
  const auto share = [](Phase phase) {
    return attention_share(fused_attention(16384, 128, phase, 1, 16), hopper_device());
  };
  EXPECT_NEAR(share(Phase::input_grad) / share(Phase::forward), 322.0 / 370, 0.02);
}

// By its definition: forward and backward together at 4,096 tokens and heads of 128.
TEST(AttentionShare, IsOneAtTheReference) {
  const double forward = attention_share(fused_attention(4096, 128, Phase::forward, 4, 16), hopper_device());
  const double backward = attention_share(fused_attention(4096, 128, Phase::input_grad, 4, 16), hopper_device());
  EXPECT_NEAR(3.5 / (1 / forward + 2.5 / backward), 1, 1e-12);
}

// 4 heads of 4,096 tokens are 128 tiles of 128 queries; the longest of them has 32 blocks of keys where the mean has
// 16.5, so 132 units take about twice as long as their share of the work.
TEST(AttentionShare, OfFewHeadsLeavesUnitsIdle) {
  const double few = attention_share(fused_attention(4096, 128, Phase::forward, 1, 4), hopper_device());
  const double many = attention_share(fused_attention(4096, 128, Phase::forward, 1, 64), hopper_device());
  EXPECT_NEAR(many / few, 2 * 132.0 / 128, 1e-9);
}

// Twice the tokens are four times the work, and less than four times the time.
TEST(KernelSeconds, OfFusedAttentionGrowWithItsLength) {
  DeviceProfile reached = default_profile().device("h100");
  reached.kernel_gap = Nanos{0};
  double before = kernel_seconds(fused_attention(512, 128, Phase::forward, 32, 16), hopper_device(), reached);
  for (const std::int64_t tokens : {1024, 2048, 4096, 8192, 16384}) {
    const double now = kernel_seconds(fused_attention(tokens, 128, Phase::forward, 32, 16), hopper_device(), reached);
    EXPECT_GT(now, 2 * before) << tokens;
    EXPECT_LT(now, 4 * before) << tokens;
    before = now;
  }
}

}  // namespace
}  // namespace weft
