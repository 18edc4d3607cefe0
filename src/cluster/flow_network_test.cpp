#include "cluster/flow_network.hpp"

#include <gtest/gtest.h>

#include "cluster/presets.hpp"

namespace weft {
namespace {

// local:4 with 100 MB/s links: 0.1 bytes a nanosecond; the latency of a link is 50 us.
Cluster four_ranks() {
  return Cluster(parse_cluster("local:4,nic=100MB/s"));
}

constexpr Nanos kLatency{50'000};

Nanos end_of(FlowNetwork& network, std::int32_t flow) {
  for (;;) {
    network.clear_arrived();
    const std::optional<Nanos> next = network.next_event();
    if (const auto end = network.ended(flow, next.value_or(Nanos{1'000'000'000'000}))) return *end;
  }
}

TEST(FlowNetwork, AMessageAloneTakesLatencyPlusBytesOverBandwidth) {
  const Cluster cluster = four_ranks();
  FlowNetwork network(cluster);
  const std::int32_t flow = network.start(network.open_connection(Rank{0}, Rank{1}), Bytes{1'000'000}, Nanos{7'000});
  EXPECT_EQ(end_of(network, flow), Nanos{7'000} + kLatency + Nanos{10'000'000});
}

TEST(FlowNetwork, TheSlowdownStretchesLatencyAndBytes) {
  const Cluster cluster = four_ranks();
  FlowNetwork network(cluster, 3);
  EXPECT_EQ(end_of(network, network.start(network.open_connection(Rank{0}, Rank{1}), Bytes{1'000'000}, Nanos{0})),
            3 * kLatency + Nanos{30'000'000});
}

// Where there is no latency an empty message ends as it sets out, and the next one must not bury that.
TEST(FlowNetwork, WhatHasArrivedIsAnEventUntilItIsCleared) {
  ClusterSpec spec = four_ranks().spec();
  spec.levels.front().latency = {};
  const Cluster cluster(spec);
  FlowNetwork network(cluster);
  network.start(network.open_connection(Rank{0}, Rank{1}), Bytes{0}, Nanos{10});
  network.start(network.open_connection(Rank{2}, Rank{3}), Bytes{1'000}, Nanos{10});
  EXPECT_EQ(network.next_event(), Nanos{10});
  EXPECT_EQ(network.arrived().size(), 1U);
  network.clear_arrived();
  network.advance(Nanos{10});
  EXPECT_EQ(network.next_event(), Nanos{10 + 10'000});
}

TEST(FlowNetwork, EmptyMessagesTakeTheLatency) {
  const Cluster cluster = four_ranks();
  FlowNetwork network(cluster);
  EXPECT_EQ(end_of(network, network.start(network.open_connection(Rank{2}, Rank{3}), Bytes{0}, Nanos{0})), kLatency);
}

TEST(FlowNetwork, TwoMessagesOfASenderShareItsLink) {
  const Cluster cluster = four_ranks();
  FlowNetwork network(cluster);
  const std::int32_t a = network.start(network.open_connection(Rank{0}, Rank{1}), Bytes{1'000'000}, Nanos{0});
  const std::int32_t b = network.start(network.open_connection(Rank{0}, Rank{2}), Bytes{3'000'000}, Nanos{0});
  // Half the rate each: a ends after 20 ms; b has 2 MB left and the link alone: 20 ms more.
  EXPECT_EQ(end_of(network, a), kLatency + Nanos{20'000'000});
  EXPECT_EQ(end_of(network, b), kLatency + Nanos{40'000'000});
}

TEST(FlowNetwork, BothDirectionsOfAFullDuplexLinkAreSeparate) {
  const Cluster cluster = four_ranks();
  FlowNetwork network(cluster);
  const std::int32_t a = network.start(network.open_connection(Rank{0}, Rank{1}), Bytes{1'000'000}, Nanos{0});
  const std::int32_t b = network.start(network.open_connection(Rank{1}, Rank{0}), Bytes{1'000'000}, Nanos{0});
  EXPECT_EQ(end_of(network, a), kLatency + Nanos{10'000'000});
  EXPECT_EQ(end_of(network, b), kLatency + Nanos{10'000'000});
}

TEST(FlowNetwork, SharesAreMaxMinFair) {
  const Cluster cluster = four_ranks();
  FlowNetwork network(cluster);
  // 0 -> 2, 1 -> 2 and 0 -> 3, all of 1 MB. Out of 0: two flows; into 2: two flows. Every flow gets one half.
  // 1 -> 2 could not take more, since 2's link is full. All end after 20 ms.
  const std::int32_t a = network.start(network.open_connection(Rank{0}, Rank{2}), Bytes{1'000'000}, Nanos{0});
  const std::int32_t b = network.start(network.open_connection(Rank{1}, Rank{2}), Bytes{1'000'000}, Nanos{0});
  const std::int32_t c = network.start(network.open_connection(Rank{0}, Rank{3}), Bytes{1'000'000}, Nanos{0});
  // A third into 2 makes thirds there: 0 -> 2 gets 1/3, so 0 -> 3 rises to 2/3.
  const std::int32_t d = network.start(network.open_connection(Rank{3}, Rank{2}), Bytes{1'000'000}, Nanos{0});
  EXPECT_EQ(end_of(network, c), kLatency + Nanos{15'000'000});
  EXPECT_EQ(end_of(network, a), kLatency + Nanos{30'000'000});
  EXPECT_EQ(end_of(network, b), kLatency + Nanos{30'000'000});
  EXPECT_EQ(end_of(network, d), kLatency + Nanos{30'000'000});
}

TEST(FlowNetwork, MessagesOfALaneKeepTheirOrderAndOverlapTheirLatencies) {
  const Cluster cluster = four_ranks();
  FlowNetwork network(cluster);
  const std::int32_t connection = network.open_connection(Rank{0}, Rank{1});
  const std::int32_t a = network.start(connection, Bytes{1'000'000}, Nanos{0});
  const std::int32_t empty = network.start(connection, Bytes{0}, Nanos{0});
  const std::int32_t b = network.start(connection, Bytes{1'000'000}, Nanos{0});
  EXPECT_EQ(end_of(network, a), kLatency + Nanos{10'000'000});
  EXPECT_EQ(end_of(network, empty), kLatency + Nanos{10'000'000});
  EXPECT_EQ(end_of(network, b), kLatency + Nanos{20'000'000});
}

TEST(FlowNetwork, TimeMayJumpOverSeveralEvents) {
  const Cluster cluster = four_ranks();
  FlowNetwork network(cluster);
  const std::int32_t a = network.start(network.open_connection(Rank{0}, Rank{1}), Bytes{1'000'000}, Nanos{0});
  const std::int32_t b = network.start(network.open_connection(Rank{0}, Rank{2}), Bytes{3'000'000}, Nanos{0});
  EXPECT_EQ(network.ended(b, Nanos{1'000'000'000}), kLatency + Nanos{40'000'000});
  EXPECT_EQ(network.ended(a, Nanos{1'000'000'000}), kLatency + Nanos{20'000'000});
  network.clear_arrived();
  EXPECT_FALSE(network.next_event());
}

}  // namespace
}  // namespace weft
