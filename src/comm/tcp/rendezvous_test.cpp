#include "comm/tcp/rendezvous.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/error.hpp"
#include "comm/tcp/mesh.hpp"
#include "comm/tcp/message.hpp"
#include "comm/tcp/test_threads.hpp"

namespace weft::tcp {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kAmple{30'000};
constexpr milliseconds kShort{300};

void sleep(milliseconds time) {
  std::this_thread::sleep_for(time);
}

RendezvousOptions options_for(TestRoot& root, std::int64_t rank, std::int64_t size, milliseconds timeout) {
  return {rank, size, root.address, "job", root.take_listener(rank), timeout};
}

std::vector<std::string> names(std::int64_t size, const std::string& word) {
  std::vector<std::string> texts;
  for (std::int64_t rank = 0; rank < size; ++rank) texts.push_back(fmt::format("{} {}", word, rank));
  return texts;
}

TEST(Rendezvous, EveryRankGetsTheWordsOfAllByRank) {
  for (const std::int64_t size : {1, 2, 3, 7}) {
    TestRoot root;
    expect_no_errors(run_threads(size, [&](std::int64_t rank) {
      Rendezvous rendezvous(options_for(root, rank, size, kAmple));
      EXPECT_EQ(rendezvous.exchange(fmt::format("first {}", rank)), names(size, "first"));
      EXPECT_EQ(rendezvous.exchange(fmt::format("second {}", rank)), names(size, "second"));
      EXPECT_EQ(rendezvous.exchange(""), std::vector<std::string>(static_cast<std::size_t>(size)));
      const std::string large(3'000'000, static_cast<char>('a' + rank));
      EXPECT_EQ(rendezvous.exchange(large)[size - 1], std::string(3'000'000, static_cast<char>('a' + size - 1)));
    }));
  }
}

// The port is free until rank 0 comes: the others are refused and knock again.
TEST(Rendezvous, RankZeroMayComeLast) {
  const std::string address = TestRoot().address;
  expect_no_errors(run_threads(3, [&](std::int64_t rank) {
    if (rank == 0) sleep(kShort);
    Rendezvous rendezvous({rank, 3, address, "job", -1, kAmple});
    EXPECT_EQ(rendezvous.exchange(fmt::format("r {}", rank)), names(3, "r"));
  }));
}

TEST(Rendezvous, OthersMayComeLate) {
  TestRoot root;
  expect_no_errors(run_threads(3, [&](std::int64_t rank) {
    sleep(rank * kShort / 2);
    Rendezvous rendezvous(options_for(root, rank, 3, kAmple));
    EXPECT_EQ(rendezvous.exchange(fmt::format("r {}", rank)), names(3, "r"));
  }));
}

TEST(Rendezvous, AllWhoCameNameTheRanksThatDidNot) {
  TestRoot root;
  const auto errors = run_threads(4, [&](std::int64_t rank) {
    if (rank == 1 || rank == 3) return;
    Rendezvous rendezvous(options_for(root, rank, 4, rank == 0 ? kShort : kAmple));
  });
  EXPECT_EQ(errors[0], "ranks 1, 3 did not come within 0.3 s");
  EXPECT_EQ(errors[2], errors[0]);
}

TEST(Rendezvous, SaysThatRankZeroDidNotCome) {
  const std::string address = TestRoot().address;
  try {
    Rendezvous rendezvous({1, 2, address, "job", -1, kShort});
    FAIL() << "rank 0 is not there";
  } catch (const RunFailed& error) {
    EXPECT_EQ(std::string(error.what()),
              "rank 1 did not find rank 0 at " + address + " within 0.3 s: Connection refused");
  }
}

TEST(Rendezvous, TwoProcessesThatClaimOneRankAreNamedToAll) {
  TestRoot root;
  const auto errors = run_threads(3, [&](std::int64_t thread) {
    const std::int64_t rank = thread == 2 ? 1 : thread;
    Rendezvous rendezvous(options_for(root, rank, 3, kAmple));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "two processes claim rank 1");
}

TEST(Rendezvous, DifferentNumbersOfRanksAreNamedToAll) {
  TestRoot root;
  const auto errors = run_threads(
      2, [&](std::int64_t rank) { Rendezvous rendezvous(options_for(root, rank, rank == 0 ? 2 : 5, kAmple)); });
  for (const std::string& error : errors) EXPECT_EQ(error, "rank 1 was started as one of 5 ranks, rank 0 as one of 2");
}

TEST(Rendezvous, RejectsARankThatIsNone) {
  EXPECT_THROW(Rendezvous({2, 2, "127.0.0.1:1", "", -1, kShort}), Error);
  EXPECT_THROW(Rendezvous({-1, 2, "127.0.0.1:1", "", -1, kShort}), Error);
  EXPECT_THROW(Rendezvous({0, 0, "127.0.0.1:1", "", -1, kShort}), Error);
  EXPECT_THROW(Rendezvous({1, 2, "nowhere", "", -1, kShort}), Error);
}

TEST(Rendezvous, StrayConnectionsDoNotGetIn) {
  TestRoot root;
  const Address address = parse_address(root.address, "test");
  const auto deadline = Clock::now() + kAmple;
  Socket silent, web;
  ASSERT_TRUE(connect_to(address, deadline, silent).ok());
  ASSERT_TRUE(connect_to(address, deadline, web).ok());
  const std::string request = "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n";
  ASSERT_EQ(::send(web.fd(), request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  expect_no_errors(run_threads(2, [&](std::int64_t rank) {
    Rendezvous rendezvous(options_for(root, rank, 2, kAmple));
    EXPECT_EQ(rendezvous.exchange(fmt::format("r {}", rank)), names(2, "r"));
  }));
}

// Ranks of two jobs at one port: those of the other job are told so, without a word of either secret.
TEST(Rendezvous, ARankOfAnotherJobIsToldSoAndKeepsNobodyOut) {
  TestRoot root;
  const std::string address = root.address;
  const auto errors = run_threads(3, [&](std::int64_t thread) {
    if (thread < 2) {
      if (thread == 1) sleep(kShort);
      Rendezvous rendezvous(options_for(root, thread, 2, kAmple));
      EXPECT_EQ(rendezvous.exchange(fmt::format("r {}", thread)), names(2, "r"));
      if (thread == 0) sleep(2 * kShort);
    } else {
      Rendezvous rendezvous({1, 2, address, "another secret", -1, kShort});
    }
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_EQ(errors[1], "");
  EXPECT_EQ(errors[2].find("rank 1 did not find rank 0 at " + address + " within 0.3 s: "), 0U) << errors[2];
}

TEST(Rendezvous, ARankThatLeavesDuringAnExchangeIsNamed) {
  TestRoot root;
  const auto errors = run_threads(4, [&](std::int64_t rank) {
    Rendezvous rendezvous(options_for(root, rank, 4, kAmple));
    if (rank != 2) rendezvous.exchange("");
  });
  for (const std::int64_t rank : {0, 1, 3}) {
    EXPECT_EQ(errors[rank], "rank 2 is lost: its connection closed");
  }
}

TEST(Mesh, ConnectsEveryPairOnce) {
  constexpr std::int64_t kSize = 5;
  TestRoot root;
  expect_no_errors(run_threads(kSize, [&](std::int64_t rank) {
    Rendezvous rendezvous(options_for(root, rank, kSize, kAmple));
    const auto sockets = connect_mesh({rank, kSize, all_others(rank, kSize), rendezvous.own_address(), "job", kAmple},
                                      [&](const std::string& mine) { return rendezvous.exchange(mine); });
    const auto deadline = Clock::now() + kAmple;
    for (const std::int64_t peer : all_others(rank, kSize)) {
      const Socket& socket = sockets[peer];
      ASSERT_TRUE(send_message(socket, MessageKind::text, fmt::format("{} to {}", rank, peer), deadline).ok());
    }
    for (const std::int64_t peer : all_others(rank, kSize)) {
      MessageReader reader;
      ASSERT_TRUE(reader.read_until(sockets[peer], deadline).ok());
      EXPECT_EQ(reader.text(), fmt::format("{} to {}", peer, rank));
    }
    EXPECT_FALSE(sockets[rank]);
  }));
}

}  // namespace
}  // namespace weft::tcp
