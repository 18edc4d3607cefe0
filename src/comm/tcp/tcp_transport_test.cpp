#include "comm/tcp/tcp_transport.hpp"

#include <gtest/gtest.h>

#include <future>

#include "base/error.hpp"
#include "comm/rank_health.hpp"
#include "comm/tcp/test_threads.hpp"
#include "comm/test_transport_contract.hpp"

namespace weft {
namespace {

using namespace transport_contract;
using tcp::expect_no_errors;
using tcp::run_threads;
using tcp::TestRoot;

std::unique_ptr<Transport> connect(TestRoot& root, std::int64_t rank, std::int64_t size) {
  TcpOptions options;
  options.rank = rank;
  options.size = size;
  options.root = root.address;
  options.secret = "test";
  options.root_listener = root.take_listener(rank);
  return make_tcp_transport(options);
}

std::vector<std::string> run_ranks(std::int64_t size, const std::function<void(Transport&)>& body) {
  TestRoot root;
  return run_threads(size, [&](std::int64_t rank) { body(*connect(root, rank, size)); });
}

class TcpContract : public testing::TestWithParam<std::tuple<std::int64_t, TransportCase>> {};

TEST_P(TcpContract, Holds) {
  expect_no_errors(run_ranks(std::get<0>(GetParam()), std::get<1>(GetParam()).body));
}

INSTANTIATE_TEST_SUITE_P(Ranks, TcpContract,
                         testing::Combine(testing::Values<std::int64_t>(2, 3, 7), testing::ValuesIn(transport_cases())),
                         [](const auto& each) {
                           return std::get<1>(each.param).name + std::to_string(std::get<0>(each.param));
                         });

TEST(TcpTransport, OneRankAloneIsFine) {
  expect_no_errors(run_ranks(1, [](Transport& transport) {
    EXPECT_EQ(transport.size(), 1);
    EXPECT_EQ(transport.features().health->lost().has_value(), false);
    transport.pause(Transport::Clock::now());
  }));
}

// Rank 0 starts long messages on many channels whose receives rank 1 posts only after a message on the last channel.
TEST(TcpTransport, AChannelWithoutReceivesBlocksNoOther) {
  constexpr std::int64_t kMaxChannels = 40;
  expect_no_errors(run_ranks(2, [](Transport& transport) {
    const std::int64_t rank = transport.rank();
    std::vector<Bytestring> data;
    std::vector<std::vector<Segment>> segments;
    for (std::int64_t channel = 0; channel < kMaxChannels; ++channel) {
      const std::int64_t bytes = channel % 2 == 0 ? 1 << 20 : 1 << 10;  // those that may come early, and those that not
      data.push_back(rank == 0 ? make_message({0, 1, channel, 0}, bytes) : Bytestring(static_cast<std::size_t>(bytes)));
    }
    for (Bytestring& each : data) segments.push_back(whole(each));
    const auto start = [&](std::int64_t channel) {
      const auto& mine = segments[channel];
      return rank == 0 ? transport.send(1, channel, mine) : transport.receive(0, channel, into(mine));
    };
    std::vector<Ticket> tickets;
    if (rank == 0) {
      for (std::int64_t channel = 0; channel < kMaxChannels; ++channel) tickets.push_back(start(channel));
      finish(transport, tickets);
      return;
    }
    for (std::int64_t channel = kMaxChannels; channel-- > 0;) {
      finish(transport, {start(channel)});
      expect_message(data[channel], {0, 1, channel, 0});
    }
  }));
}

// More short messages than may come before their receives.
TEST(TcpTransport, ManyShortMessagesWaitForTheirReceives) {
  constexpr std::int64_t kMessages = 500;
  expect_no_errors(run_ranks(2, [](Transport& transport) {
    std::vector<Bytestring> data;
    std::vector<std::vector<Segment>> segments;
    for (std::int64_t k = 0; k < kMessages; ++k) {
      data.push_back(transport.rank() == 0 ? make_message({0, 1, k % 5, k}, 100 + k)
                                           : Bytestring(static_cast<std::size_t>(100 + k)));
    }
    for (Bytestring& each : data) segments.push_back(whole(each));
    std::vector<Ticket> tickets;
    if (transport.rank() == 1) transport.pause(Transport::Clock::now() + std::chrono::milliseconds(100));
    for (std::int64_t k = 0; k < kMessages; ++k) {
      const auto& mine = segments[k];
      tickets.push_back(transport.rank() == 0 ? transport.send(1, k % 5, mine)
                                              : transport.receive(0, k % 5, into(mine)));
    }
    finish(transport, tickets);
    if (transport.rank() == 0) return;
    for (std::int64_t k = 0; k < kMessages; ++k) expect_message(data[k], {0, 1, k % 5, k});
  }));
}

// Around a ring, into another buffer than the operand: short messages (which may come before their receives) and long.
TEST(TcpTransport, ReducesOnArrival) {
  for (const std::int64_t elements : {0, 1, 1000, 300'007}) {
    expect_no_errors(run_ranks(3, [&](Transport& transport) {
      ASSERT_TRUE(transport.features().reduces_on_arrival);
      const auto count = static_cast<std::size_t>(elements);
      std::vector<std::int32_t> mine(count), other(count), sum(count);
      for (std::size_t i = 0; i < count; ++i) {
        mine[i] = static_cast<std::int32_t>(i) * static_cast<std::int32_t>(transport.rank() + 1);
        other[i] = 7 * static_cast<std::int32_t>(i) + 1;
      }
      const auto segments = [&](std::vector<std::int32_t>& values) {
        const std::int64_t half = elements / 2 * 4;
        auto* data = reinterpret_cast<std::byte*>(values.data());
        return std::vector<Segment>{{data, half}, {data + half, elements * 4 - half}};
      };
      const auto out = segments(mine), with = segments(other), to = segments(sum);
      Landing landing = into(to);
      landing.operand = with;
      landing.type = ElementType::i32;
      if (transport.rank() == 1) transport.pause(Transport::Clock::now() + std::chrono::milliseconds(20));
      const Ticket sent = transport.send(next_of(transport), 2, out);
      finish(transport, {sent, transport.receive(previous_of(transport), 2, landing)});
      const auto factor = static_cast<std::int32_t>(previous_of(transport) + 1) + 7;
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(sum[i], factor * static_cast<std::int32_t>(i) + 1);
    }));
  }
}

TEST(TcpTransport, WakeEndsAPause) {
  expect_no_errors(run_ranks(2, [](Transport& transport) {
    const auto deadline = Transport::Clock::now() + std::chrono::seconds(60);
    std::atomic<bool> stop = false;
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      stop = true;
      transport.wake();
    });
    while (!stop && Transport::Clock::now() < deadline) transport.pause(deadline);
    other.join();
    EXPECT_LT(Transport::Clock::now(), deadline);
  }));
}

// What was sent before a rank left arrives all the same.
TEST(TcpTransport, ARankMayLeaveOnceItsMessagesHaveLeft) {
  expect_no_errors(run_ranks(2, [](Transport& transport) {
    for (std::int64_t k = 0; k < 3; ++k) {
      const MessageId id{0, 1, 4, k};
      Bytestring data = transport.rank() == 0 ? make_message(id, 2 << 20) : Bytestring(2 << 20);
      const auto segments = whole(data);
      if (transport.rank() == 0) {
        finish(transport, {transport.send(1, 4, segments)});
      } else {
        finish(transport, {transport.receive(0, 4, into(segments))});
        expect_message(data, id);
      }
    }
    const std::optional<LostRank> lost = transport.features().health->lost();
    EXPECT_FALSE(lost) << lost->reason;
  }));
}

TEST(TcpTransport, WaitingForARankThatLeftFails) {
  const auto errors = run_ranks(2, [](Transport& transport) {
    if (transport.rank() == 1) return;
    Bytestring data(100);
    const auto segments = whole(data);
    finish(transport, {transport.receive(1, 0, into(segments))});
  });
  EXPECT_EQ(errors[0], "rank 1 is lost: it has left");
  EXPECT_EQ(errors[1], "");
}

TEST(TcpTransport, OthersHearWhyARankGivesUp) {
  const auto errors = run_ranks(3, [](Transport& transport) {
    Bytestring data(100);
    const auto segments = whole(data);
    if (transport.rank() == 2) {
      transport.features().health->give_up("disk full");
      EXPECT_FALSE(transport.features().health->lost().has_value());
      return;
    }
    finish(transport, {transport.receive(2, 0, into(segments))});
  });
  EXPECT_EQ(errors[0], "rank 2 is lost: it gave up: disk full");
  EXPECT_EQ(errors[1], "rank 2 is lost: it gave up: disk full");
}

TEST(TcpTransport, MemoryIsLeftAloneOnceARankHasGivenUp) {
  expect_no_errors(run_ranks(2, [](Transport& transport) {
    Bytestring data(1000, std::byte{7});
    const auto segments = whole(data);
    if (transport.rank() == 1) {
      finish(transport, {transport.send(0, 0, segments)});
      while (!transport.features().health->lost())
        transport.pause(Transport::Clock::now() + std::chrono::milliseconds(20));
      return;
    }
    Bytestring place(1000);
    const auto to = whole(place);
    transport.receive(1, 0, into(to));
    transport.features().health->give_up("enough");
    for (int i = 0; i < 10; ++i) transport.pause(Transport::Clock::now() + std::chrono::milliseconds(20));
    EXPECT_EQ(place, Bytestring(1000));
  }));
}

TEST(TcpTransport, AMessageOfAnotherSizeThanItsReceiveIsNamedOnBothSides) {
  // Side by side, since each has to wait a while.
  std::vector<std::pair<std::int64_t, std::future<std::vector<std::string>>>> runs;
  for (const std::int64_t bytes : {100, 32 << 10, 1'000'000}) {  // the second is small, what is expected is not
    runs.emplace_back(bytes, std::async(std::launch::async, run_ranks, 2, [bytes](Transport& transport) {
                        Bytestring data(static_cast<std::size_t>(bytes + transport.rank()));
                        Bytestring more(8);
                        const auto segments = whole(data);
                        const auto answer = whole(more);
                        if (transport.rank() == 0) {
                          finish(transport, {transport.send(1, 6, segments), transport.receive(1, 7, into(answer))});
                        } else {
                          finish(transport, {transport.receive(0, 6, into(segments))});
                        }
                      }));
  }
  for (auto& [bytes, run] : runs) {
    const std::vector<std::string> errors = run.get();
    const std::string words =
        fmt::format("rank 0 sends {} bytes where rank 1 expects {} (channel 6)", bytes, bytes + 1);
    EXPECT_EQ(errors[1], words);
    EXPECT_EQ(errors[0], "rank 1 is lost: it gave up: " + words);
  }
}

// The other way round nothing arrives: the sender sees that it was asked for on the link for small ones.
TEST(TcpTransport, ALargeMessageWhereASmallOneIsExpectedIsNamed) {
  const std::vector<std::string> errors = run_ranks(2, [](Transport& transport) {
    Bytestring data(transport.rank() == 0 ? 100'000 : 1'000);
    const auto segments = whole(data);
    const Ticket ticket =
        transport.rank() == 0 ? transport.send(1, 6, segments) : transport.receive(0, 6, into(segments));
    finish(transport, {ticket});
  });
  const std::string words = "rank 0 sends 100000 bytes where rank 1 expects at most 32768 (channel 6)";
  EXPECT_EQ(errors[0], words);
  EXPECT_EQ(errors[1], "rank 0 is lost: it gave up: " + words);
}

// A small message behind it on the channel must not be taken for it.
TEST(TcpTransport, AMessageIsNotTakenForTheOneBeforeIt) {
  const std::vector<std::string> errors = run_ranks(2, [](Transport& transport) {
    Bytestring large(100'000), small(1'000);
    const auto first = whole(large), second = whole(small);
    if (transport.rank() == 0) {
      finish(transport, {transport.send(1, 6, first), transport.send(1, 6, second)});
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the second is here
      finish(transport, {transport.receive(0, 6, into(second))});
    }
  });
  EXPECT_NE(errors[0], "");
  EXPECT_NE(errors[1], "");
  EXPECT_NE((errors[0] + errors[1]).find("(channel 6)"), std::string::npos) << errors[0] << errors[1];
}

// Of several that are asked for, too.
TEST(TcpTransport, ALargeMessageWhereSeveralSmallOnesAreExpectedIsNamed) {
  const std::vector<std::string> errors = run_ranks(2, [](Transport& transport) {
    Bytestring large(100'000), small(1'000), another(1'000);
    const auto first = whole(large), second = whole(small), third = whole(another);
    if (transport.rank() == 0) {
      finish(transport, {transport.send(1, 6, first)});
    } else {
      finish(transport, {transport.receive(0, 6, into(second)), transport.receive(0, 6, into(third))});
    }
  });
  EXPECT_EQ(errors[0], "rank 0 sends 100000 bytes where rank 1 expects at most 32768 (channel 6)");
}

}  // namespace
}  // namespace weft
