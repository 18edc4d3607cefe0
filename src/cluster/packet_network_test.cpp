#include "cluster/packet_network.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "cluster/presets.hpp"

namespace weft {
namespace {

constexpr Nanos kWayLatency{50'000};

// 100 MB/s: 10 kB take 100 us. Links save up 0 or 100 kB.
Cluster joined_ranks(std::int64_t burst = 0) {
  ClusterSpec spec = parse_cluster("local:4,nic=100MB/s");
  spec.levels.front().latency = kWayLatency;
  spec.levels.front().burst = {burst};
  return Cluster(spec);
}

PacketNetwork::Options packets_of(std::int64_t bytes) {
  PacketNetwork::Options options;
  options.packet = {bytes};
  options.window = {8 * bytes};
  options.window_spread = 0;
  options.at_source = 4;
  return options;
}

// When each message arrived, by its number.
std::vector<Nanos> arrivals(PacketNetwork& network, std::size_t messages) {
  while (const std::optional<Nanos> next = network.next_event()) network.advance(*next);
  std::vector<Nanos> times(messages);
  for (const PacketNetwork::Arrival& arrival : network.arrived()) {
    times.at(arrival.message) = arrival.time;
  }
  return times;
}

double milliseconds(Nanos time) {
  return static_cast<double>((time - kWayLatency).value) * 1e-6;
}

// A packet is received whole before it goes on: the first link delays the whole by one packet.
TEST(PacketNetwork, AStreamTakesItsBytesAndOnePacketMore) {
  const Cluster cluster = joined_ranks();
  PacketNetwork network(cluster, packets_of(10'000));
  network.start(network.open_connection(Rank{0}, Rank{1}), Bytes{1'000'000}, Nanos{0});
  EXPECT_NEAR(milliseconds(arrivals(network, 1)[0]), 10 + 0.1, 0.01);
}

TEST(PacketNetwork, EmptyAndSmallMessagesArriveToo) {
  const Cluster cluster = joined_ranks();
  PacketNetwork network(cluster, packets_of(10'000));
  const std::int32_t connection = network.open_connection(Rank{0}, Rank{1});
  network.start(connection, Bytes{0}, Nanos{0});
  network.start(connection, Bytes{1}, Nanos{0});
  const std::vector<Nanos> times = arrivals(network, 2);
  EXPECT_GE(times[0], kWayLatency);
  EXPECT_GE(times[1], times[0]);
  EXPECT_LT(times[1], kWayLatency + Nanos{10'000});
}

// Connections that leave one device take turns, so both end at the end.
TEST(PacketNetwork, LanesOfADeviceTakeTurns) {
  const Cluster cluster = joined_ranks();
  PacketNetwork network(cluster, packets_of(10'000));
  network.start(network.open_connection(Rank{0}, Rank{1}), Bytes{1'000'000}, Nanos{0});
  network.start(network.open_connection(Rank{0}, Rank{2}), Bytes{1'000'000}, Nanos{0});
  const std::vector<Nanos> times = arrivals(network, 2);
  EXPECT_NEAR(milliseconds(times[0]), 20, 0.6);
  EXPECT_NEAR(milliseconds(times[1]), 20, 0.6);
}

// Equal windows before two crowded links: who crosses both gets a third of each, who crosses one gets two thirds
// (proportional fairness: maximise the sum of the logarithms of the rates). Max-min shares would be halves.
// Other than large ones: who set out first is through first.
TEST(PacketNetwork, SmallMessagesStandInLineAtOnce) {
  const Cluster cluster = joined_ranks();
  PacketNetwork::Options options = packets_of(10'000);
  options.small = options.window_of_small = {500'000};
  PacketNetwork network(cluster, options);
  network.start(network.open_connection(Rank{0}, Rank{1}), Bytes{500'000}, Nanos{0});
  network.start(network.open_connection(Rank{0}, Rank{2}), Bytes{500'000}, Nanos{0});
  const std::vector<Nanos> times = arrivals(network, 2);
  EXPECT_NEAR(milliseconds(times[0]), 5 + 0.1, 0.01);
  EXPECT_NEAR(milliseconds(times[1]), 10 + 0.1, 0.01);
}

TEST(PacketNetwork, WhoCrossesTwoCrowdedLinksGetsLess) {
  const Cluster cluster = joined_ranks();
  PacketNetwork::Options options = packets_of(1'000);
  options.window = {32'000};
  options.at_source = 1000;
  PacketNetwork network(cluster, options);
  const std::int32_t both = network.start(network.open_connection(Rank{2}, Rank{0}), Bytes{10'000'000}, Nanos{0});
  network.start(network.open_connection(Rank{1}, Rank{0}), Bytes{10'000'000}, Nanos{0});
  network.start(network.open_connection(Rank{2}, Rank{3}), Bytes{10'000'000}, Nanos{0});
  const std::vector<Nanos> times = arrivals(network, 3);
  // Until the short ones end, at 150 ms, it has sent 5 MB; the rest takes 50 ms alone.
  EXPECT_EQ(both, 0);
  EXPECT_NEAR(milliseconds(times[1]), 150, 8);
  EXPECT_NEAR(milliseconds(times[2]), 150, 8);
  EXPECT_NEAR(milliseconds(times[0]), 200, 8);
}

// Tokens for 100 kB: they pass at once, and come back at the link's rate.
TEST(PacketNetwork, WhatALinkHasSavedGoesAtOnce) {
  const Cluster cluster = joined_ranks(100'000);
  PacketNetwork::Options options = packets_of(10'000);
  options.window = {2'000'000};
  options.at_source = 1000;
  PacketNetwork network(cluster, options);
  const std::int32_t connection = network.open_connection(Rank{0}, Rank{1});
  network.start(connection, Bytes{1'000'000}, Nanos{0});
  network.start(connection, Bytes{1'000'000}, Nanos{9'500'000});   // half of it saved again since 9 ms
  network.start(connection, Bytes{60'000}, Nanos{1'000'000'000});  // all of it
  const std::vector<Nanos> times = arrivals(network, 3);
  EXPECT_NEAR(milliseconds(times[0]), 9, 0.01);
  EXPECT_NEAR(milliseconds(times[1]), 9.5 + 9.5, 0.02);
  EXPECT_NEAR(milliseconds(times[2]), 1000, 0.001);
}

// Links that let all through at once, so that only the devices' own work is left: a byte a nanosecond.
PacketNetwork::Options slow_hosts() {
  PacketNetwork::Options options = packets_of(10'000);
  options.window = {2'000'000};
  options.at_source = 1000;
  options.host_rate = {1e9};
  return options;
}

TEST(PacketNetwork, DevicesWorkOnWhatTheySendAndReceive) {
  const Cluster cluster = joined_ranks(100'000);
  PacketNetwork network(cluster, slow_hosts());
  network.start(network.open_connection(Rank{0}, Rank{1}), Bytes{60'000}, Nanos{0});
  // The first packet's 5 us at the sender, and 15 of each at the receiver.
  EXPECT_NEAR(milliseconds(arrivals(network, 1)[0]), 0.005 + 6 * 0.015, 0.001);
}

// Device 0 sends to three, who send to it: six times 20 us of its work, one after the other; the others have a third.
TEST(PacketNetwork, ADeviceDoesOneThingAfterTheOther) {
  const Cluster cluster = joined_ranks(100'000);
  PacketNetwork network(cluster, slow_hosts());
  for (std::int32_t other = 1; other < 4; ++other) {
    network.start(network.open_connection(Rank{0}, Rank{other}), Bytes{20'000}, Nanos{0});
    network.start(network.open_connection(Rank{other}, Rank{0}), Bytes{20'000}, Nanos{0});
  }
  const std::vector<Nanos> times = arrivals(network, 6);
  EXPECT_NEAR(milliseconds(*std::max_element(times.begin(), times.end())), 0.12, 0.001);
}

TEST(PacketNetwork, EveryMessageTakesWorkAtBothEnds) {
  const Cluster cluster = joined_ranks(100'000);
  PacketNetwork::Options options = packets_of(10'000);
  options.per_message = {30'000};
  PacketNetwork network(cluster, options);
  const std::int32_t connection = network.open_connection(Rank{0}, Rank{1});
  for (int i = 0; i < 4; ++i) network.start(connection, Bytes{i == 0 ? 25'000 : 0}, Nanos{0});
  // Four times half of it at the sender, and once more at the receiver; packets of one message count once.
  EXPECT_NEAR(milliseconds(arrivals(network, 4)[3]), 0.075, 0.001);
}

TEST(PacketNetwork, WhatTheReceiverMakesOfAMessageTakesItsTime) {
  const Cluster cluster = joined_ranks(100'000);
  PacketNetwork network(cluster, packets_of(10'000));
  network.start(network.open_connection(Rank{0}, Rank{1}), Bytes{40'000}, Nanos{0}, Nanos{80'000});
  EXPECT_NEAR(milliseconds(arrivals(network, 1)[0]), 0.08, 0.001);
  // In its own time a device does nothing else.
  EXPECT_EQ(network.work(Rank{2}, Nanos{1'000'000}, Nanos{500'000}), Nanos{1'500'000});
  network.start(network.open_connection(Rank{3}, Rank{2}), Bytes{10'000}, Nanos{1'000'000}, Nanos{100'000});
  EXPECT_NEAR(milliseconds(arrivals(network, 2)[1]), 1.6, 0.001);
}

// A word does not wait for what its connection has not sent, but for what stands before the link: four packets of 100
// us.
TEST(PacketNetwork, AWordStandsBehindThePacketsAtTheSource) {
  const Cluster cluster = joined_ranks();
  PacketNetwork network(cluster, packets_of(10'000));
  const std::int32_t connection = network.open_connection(Rank{0}, Rank{1});
  network.start(connection, Bytes{1'000'000}, Nanos{0});
  const std::int32_t word = network.start_word(connection, Nanos{0});
  const double time = milliseconds(arrivals(network, 2)[word]);
  EXPECT_GE(time, 0.4);
  EXPECT_LE(time, 0.6);
}

// What is left of a message when only `spare` is to be sent is the system's: 30 kB here, of 1 MB.
TEST(PacketNetwork, TheSystemTakesTheEndOfAMessageOver) {
  const Cluster cluster = joined_ranks();
  PacketNetwork::Options options = packets_of(10'000);
  options.spare = {30'000};
  PacketNetwork network(cluster, options);
  const std::int32_t connection = network.open_connection(Rank{0}, Rank{1});
  const std::int32_t large = network.start(connection, Bytes{1'000'000}, Nanos{0});
  const std::vector<Nanos> times = arrivals(network, 1);
  ASSERT_EQ(network.taken_over().size(), 1U);
  EXPECT_EQ(network.taken_over().front().message, large);
  // It leaves when 970 kB have; four packets stand in line then.
  EXPECT_NEAR(static_cast<double>(network.taken_over().front().time.value) * 1e-6, 9.7 - 0.4, 0.15);
  EXPECT_LT(network.taken_over().front().time, times[0]);
}

TEST(PacketNetwork, TheSameInputGivesTheSameTimes) {
  const Cluster cluster = joined_ranks(15'000);
  std::vector<Nanos> before;
  for (int run = 0; run < 2; ++run) {
    PacketNetwork network(cluster, {});
    for (std::int32_t from = 0; from < 4; ++from) {
      for (std::int32_t to = 0; to < 4; ++to) {
        if (from != to) network.start(network.open_connection(Rank{from}, Rank{to}), Bytes{100'000}, Nanos{0});
      }
    }
    const std::vector<Nanos> times = arrivals(network, 12);
    if (run > 0) {
      EXPECT_EQ(times, before);
    }
    before = times;
  }
}

}  // namespace
}  // namespace weft
