#include "cost/attention_time.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace weft {
namespace {

// All of this is from the figures of Shah et al. 2024 (FlashAttention-3): FlashAttention-2, FlashAttention-3 and cuDNN
// on an H100 in 16 bits, 512 to 16,384 tokens, 16,384 of them in a batch, heads of 64, 128 and 256. Rates grow with the
// length L as L / (L + L0). One L0 is within 12 % of the three kernels' causal forward from 1,024 tokens up (within 31
// % at 512): on the diagonal they compute tiles of which the mask throws half away.
constexpr double kForwardTokens = 330;
// Backward is given without a mask (L0 270); that a mask adds as much as in forward (270) is an estimate.
constexpr double kBackwardTokens = 540;
// Of the rate of forward, for long sequences with heads of 128.
constexpr double kBackwardShare = 0.87;

// By the size of heads, over that of 128: FlashAttention-2's. Heads of 32 are an estimate.
struct HeadShare {
  double head, share;
};
constexpr std::array kHeadShares{HeadShare{32, 0.7}, HeadShare{64, 0.89}, HeadShare{128, 1.0}, HeadShare{256, 0.89}};

// A compute unit works on so many queries of a head (in backward: keys) at a time.
constexpr double kTileRows = 128;

constexpr double kReferenceTokens = 4096;

double head_share(double head) {
  if (head <= kHeadShares.front().head) return kHeadShares.front().share;
  for (std::size_t i = 1; i < kHeadShares.size(); ++i) {
    const HeadShare &below = kHeadShares[i - 1], &above = kHeadShares[i];
    if (head > above.head) continue;
    const double way = std::log2(head / below.head) / std::log2(above.head / below.head);
    return below.share + way * (above.share - below.share);
  }
  return kHeadShares.back().share;
}

constexpr double rate_by_length(double tokens, bool backward) {
  return backward ? kBackwardShare * tokens / (tokens + kBackwardTokens) : tokens / (tokens + kForwardTokens);
}

// Backward has two and a half times the arithmetic of forward.
constexpr double kReferenceRate =
    3.5 / (1 / rate_by_length(kReferenceTokens, false) + 2.5 / rate_by_length(kReferenceTokens, true));

// The last tile of a causal head is twice as long as the mean one, and all others wait for it where there are few.
double filled_share(double tiles, double units) {
  return std::min(1.0, tiles / (2 * units));
}

}  // namespace

double attention_share(const OpKey& key, const Device& device) {
  const bool backward = key.phase == Phase::input_grad;
  const auto d = [&](std::size_t i) { return static_cast<double>(key.dims[i]); };
  const double tiles = d(0) * d(1) * std::ceil(d(backward ? 3 : 2) / kTileRows);
  return rate_by_length(d(3), backward) / kReferenceRate * head_share(std::max(d(4), d(5))) *
         filled_share(tiles, static_cast<double>(device.compute_units));
}

}  // namespace weft
