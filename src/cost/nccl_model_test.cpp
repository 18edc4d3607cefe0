// NCCL's tuning model by hand: latency per step and share of the bandwidth of each algorithm and protocol.
#include "cost/nccl_model.hpp"

#include <gtest/gtest.h>

namespace weft {
namespace {

constexpr double kMicro = 1e-6;
constexpr Bytes kSmall{1024}, kLarge{std::int64_t{1} << 30};

// What a ring's bytes take at this bus bandwidth.
double ring_seconds(Collective collective, std::int64_t ranks, Bytes bytes, double bus) {
  const double steps = (collective == Collective::all_reduce ? 2.0 : 1.0) * static_cast<double>(ranks - 1);
  return steps / static_cast<double>(ranks) * static_cast<double>(bytes.value) / bus;
}

NcclChoice choose(Collective collective, NcclGroup group, const char* device, Bytes bytes, double bus) {
  const auto choice =
      choose_nccl(collective, group, device, bytes, {ring_seconds(collective, group.ranks, bytes, bus), Nanos{0}});
  EXPECT_TRUE(choice);
  return choice.value_or(NcclChoice{});
}

TEST(NcclModel, LargeBuffersOfAmpereTakeRings) {
  // 14 steps of 3.4 us and a call of 8.4 in one node; the bytes at the full rate.
  const NcclChoice choice = choose(Collective::all_reduce, {8, 1}, "a100-80", kLarge, 230e9);
  EXPECT_EQ(choice.algorithm, NcclAlgorithm::ring);
  EXPECT_EQ(choice.protocol, NcclProtocol::simple);
  EXPECT_NEAR(seconds(choice.latency), (8.4 + 14 * 3.4) * kMicro, 1e-9);
  EXPECT_NEAR(choice.moving_seconds, ring_seconds(Collective::all_reduce, 8, kLarge, 230e9), 1e-9);
}

TEST(NcclModel, SmallBuffersTakeTheProtocolOfLeastLatency) {
  // Ring, LL: 6.6 + 14 * 0.6 = 15.0 us; tree, LL: 6.8 + 2 * 7 * 0.6 = 15.2 us; the bytes take nothing.
  const NcclChoice choice = choose(Collective::all_reduce, {8, 1}, "a100-80", kSmall, 230e9);
  EXPECT_EQ(choice.algorithm, NcclAlgorithm::ring);
  EXPECT_EQ(choice.protocol, NcclProtocol::ll);
  EXPECT_NEAR(seconds(choice.latency), 15.0 * kMicro, 1e-9);
  // On 64 nodes a ring has 126 crossings of 2.7 us and 896 other steps of a microsecond; a tree goes 6 levels up and
  // down: 6.8 + 2 * (7 * 0.6 + 6 * 5) = 75.2 us.
  const NcclChoice many = choose(Collective::all_reduce, {512, 64}, "a100-80", kSmall, 150e9);
  EXPECT_EQ(many.algorithm, NcclAlgorithm::tree);
  EXPECT_EQ(many.protocol, NcclProtocol::ll);
  EXPECT_NEAR(seconds(many.latency), 75.2 * kMicro, 1e-9);
}

TEST(NcclModel, HopperReducesInTheSwitch) {
  const NcclChoice inside = choose(Collective::all_reduce, {8, 1}, "h100", kLarge, 360e9);
  EXPECT_EQ(inside.algorithm, NcclAlgorithm::nvls);
  EXPECT_NEAR(seconds(inside.latency), 25 * kMicro, 1e-9);
  EXPECT_LT(inside.moving_seconds, ring_seconds(Collective::all_reduce, 8, kLarge, 360e9));
  // Two nodes: half of a ring's bytes cross. 25 + 2 * 1 * 20.9 us.
  const NcclChoice two = choose(Collective::all_reduce, {16, 2}, "h100", kLarge, 200e9);
  EXPECT_EQ(two.algorithm, NcclAlgorithm::nvls_tree);
  EXPECT_NEAR(seconds(two.latency), 66.8 * kMicro, 1e-9);
  EXPECT_NEAR(two.moving_seconds, ring_seconds(Collective::all_reduce, 16, kLarge, 200e9) / 2, 1e-9);
}

TEST(NcclModel, GathersTakeRingsAndOneRankANodeTakesPat) {
  // 511 steps, of which 63 cross. Simple: 8.4 + 448 * 3.4 + 63 * 14 = 2413.6 us and 5.95 ms of bytes; LL128: 14 + 448 *
  // 1.9 + 63 * 4 = 1117.2 us and 5.95 / 0.92 ms, which is less.
  const NcclChoice gather = choose(Collective::all_gather, {512, 64}, "h100", kLarge, 180e9);
  EXPECT_EQ(gather.algorithm, NcclAlgorithm::ring);
  EXPECT_EQ(gather.protocol, NcclProtocol::ll128);
  EXPECT_NEAR(seconds(gather.latency), 1117.2 * kMicro, 1e-9);
  EXPECT_NEAR(gather.moving_seconds, ring_seconds(Collective::all_gather, 512, kLarge, 180e9) / 0.92, 1e-9);
  // 32 nodes with a rank each and a megabyte: PAT has 8 + 5 * 14 / 3.5 + 32 * 2.8 us against 31 crossings of a ring.
  const NcclChoice pat = choose(Collective::all_gather, {32, 32}, "h100", Bytes{1 << 20}, 40e9);
  EXPECT_EQ(pat.algorithm, NcclAlgorithm::pat);
  EXPECT_NEAR(seconds(pat.latency), (8 + 20 + 89.6) * kMicro, 1e-9);
}

TEST(NcclModel, TheNetworksOwnLatencyCountsTwiceInSimple) {
  const double alone = ring_seconds(Collective::reduce_scatter, 16, kLarge, 200e9);
  const auto fast = choose_nccl(Collective::reduce_scatter, {16, 2}, "a100-80", kLarge, {alone, Nanos{0}});
  const auto slow = choose_nccl(Collective::reduce_scatter, {16, 2}, "a100-80", kLarge, {alone, Nanos{5'000}});
  EXPECT_EQ(slow->protocol, NcclProtocol::simple);
  EXPECT_EQ(slow->latency - fast->latency, Nanos{10'000});
}

TEST(NcclModel, SaysNothingOfOthers) {
  EXPECT_FALSE(choose_nccl(Collective::all_to_all, {8, 1}, "h100", kLarge, {1, Nanos{0}}));
  EXPECT_FALSE(choose_nccl(Collective::all_reduce, {8, 1}, "cpu", kLarge, {1, Nanos{0}}));
}

}  // namespace
}  // namespace weft
