// Strangers, who can connect but do not know the job's secret, before, among and in the place of its ranks: they
// neither join, nor learn anything, nor end the run.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>

#include "base/error.hpp"
#include "comm/liveness.hpp"
#include "comm/tcp/contact.hpp"
#include "comm/tcp/door.hpp"
#include "comm/tcp/handshake.hpp"
#include "comm/tcp/mesh.hpp"
#include "comm/tcp/process_group.hpp"
#include "comm/tcp/proof.hpp"
#include "comm/tcp/rendezvous.hpp"
#include "comm/tcp/test_threads.hpp"

namespace weft::tcp {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLong{30'000};
constexpr milliseconds kBrief{300};
const std::string kSecret = "a secret that nobody can guess";

Clock::time_point soon() {
  return Clock::now() + kLong;
}

Socket connected_to(const Address& address) {
  Socket socket;
  const Outcome outcome = connect_to(address, soon(), socket);
  EXPECT_TRUE(outcome.ok()) << outcome.reason;
  return socket;
}

void send_bytes(const Socket& socket, const void* bytes, std::size_t count) {
  ASSERT_EQ(::send(socket.fd(), bytes, count, MSG_NOSIGNAL), static_cast<ssize_t>(count));
}

void send_huge_header(const Socket& socket) {
  const std::array<std::uint64_t, 3> header = {0x7765'6674'0000'0002, 1, std::uint64_t{1} << 28};
  send_bytes(socket, header.data(), sizeof header);
}

// All that comes until the other side closes.
std::string heard_until_closed(const Socket& socket) {
  std::string heard;
  std::array<char, 4096> buffer{};
  while (wait_for(socket, POLLIN, soon())) {
    const ssize_t count = ::recv(socket.fd(), buffer.data(), buffer.size(), 0);
    if (count <= 0) return heard;
    heard.append(buffer.data(), static_cast<std::size_t>(count));
  }
  ADD_FAILURE() << "not closed";
  return heard;
}

std::string greeting_of_rank_1() {
  return to_text({{"rendezvous", 1, 0, 2}, random_hex(32)});
}

std::string next_text(const Socket& socket, MessageKind kind) {
  MessageReader reader;
  const Outcome outcome = reader.read_until(socket, soon());
  EXPECT_TRUE(outcome.ok()) << outcome.reason;
  EXPECT_EQ(reader.kind(), kind);
  return reader.text();
}

void send_text(const Socket& socket, MessageKind kind, const std::string& text) {
  ASSERT_TRUE(send_message(socket, kind, text, soon()).ok());
}

// Rank 0 waits; the attack happens; then rank 1 comes, and both can talk.
void expect_ranks_meet_after(const std::function<void(const Address&)>& attack) {
  TestRoot root;
  const Address address = parse_address(root.address, "test");
  expect_no_errors(run_threads(2, [&](std::int64_t rank) {
    if (rank == 1) attack(address);
    Rendezvous rendezvous({rank, 2, root.address, kSecret, root.take_listener(rank), kLong});
    EXPECT_EQ(rendezvous.exchange(fmt::format("r {}", rank)), (std::vector<std::string>{"r 0", "r 1"}));
  }));
}

TEST(Strangers, LearnNothingFromRankZero) {
  expect_ranks_meet_after([](const Address& address) {
    const Socket old_greeting = connected_to(address), claims_rank_1 = connected_to(address);
    send_text(old_greeting, MessageKind::greeting, "1 2 another job");
    EXPECT_EQ(heard_until_closed(old_greeting), "");
    send_text(claims_rank_1, MessageKind::greeting, greeting_of_rank_1());
    const std::string challenge = next_text(claims_rank_1, MessageKind::challenge);
    send_text(claims_rank_1, MessageKind::proof, random_hex(32));
    const std::string heard = challenge + heard_until_closed(claims_rank_1);
    EXPECT_EQ(heard.find(kSecret), std::string::npos);
    // After its random word, which depends on nothing, only a header came: three words of eight bytes.
    EXPECT_EQ(heard.size(), 64U + 24U);
  });
}

TEST(Strangers, CannotEndTheRunWithBytesOfAnyKind) {
  expect_ranks_meet_after([](const Address& address) {
    for (const MessageKind kind : {MessageKind::proof, MessageKind::here, MessageKind::welcome, MessageKind::bad_input,
                                   MessageKind::failed, MessageKind::text, MessageKind::greeting}) {
      const Socket socket = connected_to(address);
      send_text(socket, kind, "18446744073709551616 x");
      EXPECT_EQ(heard_until_closed(socket), "");
    }
    for (const char* greeting : {"rendezvous 1 0 2", "mesh 1 0 2 ", "rendezvous 1 1 2 ", "rendezvous -1 0 2 ",
                                 "rendezvous 99999999999 0 2 ", "rendezvous 1 0 2 3 "}) {
      const Socket socket = connected_to(address);
      send_text(socket, MessageKind::greeting, greeting + random_hex(32));
      EXPECT_EQ(heard_until_closed(socket), "") << greeting;
    }
  });
}

// The oldest attack on such a door: 24 of them made rank 0 take 6 GiB.
TEST(Strangers, AreSentAwayAtOnceWhenTheyAnnounceMuch) {
  expect_ranks_meet_after([](const Address& address) {
    for (int i = 0; i < 24; ++i) {
      const Socket socket = connected_to(address);
      send_huge_header(socket);
      EXPECT_EQ(heard_until_closed(socket), "");
    }
  });
}

TEST(Strangers, CannotUseAProofThatTheyOverheard) {
  expect_ranks_meet_after([](const Address& address) {
    const std::string greeting = greeting_of_rank_1();
    std::string proof;
    {  // as rank 1 would say it; the connection breaks before rank 1 stays
      const Socket honest = connected_to(address);
      send_text(honest, MessageKind::greeting, greeting);
      const std::string challenge = next_text(honest, MessageKind::challenge);
      proof = keyed_hash(kSecret, "weft visitor\n" + greeting + "\n" + challenge);
      send_text(honest, MessageKind::proof, proof);
      EXPECT_EQ(next_text(honest, MessageKind::proof),
                keyed_hash(kSecret, "weft host\n" + greeting + "\n" + challenge));
    }
    const Socket replay = connected_to(address);
    send_text(replay, MessageKind::greeting, greeting);
    next_text(replay, MessageKind::challenge);
    send_text(replay, MessageKind::proof, proof);
    EXPECT_EQ(next_text(replay, MessageKind::other_job), "");
  });
}

// More than there are places before the door, and for rank 0 fewer files than that.
TEST(Strangers, WhoStandIdleKeepNobodyOut) {
  expect_ranks_meet_after([](const Address& address) {
    allow_open_files(2000);
    std::vector<Socket> idle;
    for (int i = 0; i < 300; ++i) idle.push_back(connected_to(address));
    const Socket first = std::move(idle.front());
    EXPECT_EQ(heard_until_closed(first), "");  // it had to go for the others
  });
}

TEST(Strangers, WhoTakeAllFilesOfRankZeroKeepNobodyOut) {
  ProcessGroup group = ProcessGroup::fork(2, [](const Launch& launch) {
    std::vector<Socket> idle;
    if (launch.rank == 0) {
      const rlimit few{40, 40};
      if (::setrlimit(RLIMIT_NOFILE, &few) != 0) return 1;
    } else {
      for (int i = 0; i < 200; ++i) idle.push_back(connected_to(parse_address(launch.root, "test")));
    }
    Rendezvous rendezvous({launch.rank, 2, launch.root, launch.secret, launch.root_listener, kLong});
    return rendezvous.exchange("x").size() == 2 ? 0 : 1;
  });
  EXPECT_EQ(exit_code(group.wait(kLong)), 0);
}

// What a rank says of a false rank 0, which deals with its first connection as `attack` does, and with no other.
std::string words_on_false_rank_0(const std::function<void(const Socket&)>& attack) {
  Socket listener = listen_on({"127.0.0.1", 0});
  const std::string address = local_address(listener).text();
  std::string words;
  std::thread victim([&] {
    try {
      Rendezvous rendezvous({1, 2, address, kSecret, -1, kBrief});
      words = "joined";
    } catch (const RunFailed& failure) {
      words = failure.what();
    } catch (const std::exception& other) {
      words = fmt::format("believed: {}", other.what());
    }
  });
  Socket socket;
  EXPECT_TRUE(wait_for(listener, POLLIN, soon()));
  EXPECT_TRUE(accept_from(listener, socket).ok());
  listener.close();
  attack(socket);
  socket.close();
  victim.join();
  const std::string expected = fmt::format("rank 1 did not find rank 0 at {} within 0.3 s: ", address);
  EXPECT_EQ(words.find(expected), 0U) << words;
  return words.substr(std::min(words.size(), expected.size()));
}

TEST(FalseRankZero, IsNeitherBelievedNorFatal) {
  for (const MessageKind kind :
       {MessageKind::welcome, MessageKind::bad_input, MessageKind::failed, MessageKind::text, MessageKind::challenge}) {
    words_on_false_rank_0([&](const Socket& socket) { send_text(socket, kind, "99999999999999999999999 x"); });
  }
  words_on_false_rank_0([](const Socket& socket) { send_huge_header(socket); });
  words_on_false_rank_0([](const Socket& socket) { send_bytes(socket, "HTTP/1.1 400 Bad Request\r\n\r\n", 28); });
}

// It hears a proof of the rank, and has nothing but that to answer with.
TEST(FalseRankZero, CannotSendARanksOwnProofBackToIt) {
  std::string proof;
  words_on_false_rank_0([&](const Socket& socket) {
    next_text(socket, MessageKind::greeting);
    send_text(socket, MessageKind::challenge, random_hex(32));
    proof = next_text(socket, MessageKind::proof);
    EXPECT_EQ(proof.find(kSecret), std::string::npos);
    send_text(socket, MessageKind::proof, proof);
    EXPECT_EQ(heard_until_closed(socket), "");  // not: here
  });
  EXPECT_EQ(proof.size(), 64U);
}

// A rank 0 of the job whose words are damaged ends the run in words.
TEST(Rendezvous, WordsOfRankZeroThatMakeNoSenseAreAFailure) {
  for (const char* words : {"", "1 a", "1 a1 b1 c", "99999999999999999999999 x", "x"}) {
    TestRoot root;
    const auto errors = run_threads(2, [&](std::int64_t rank) {
      if (rank == 1) {
        Rendezvous({1, 2, root.address, kSecret, -1, kLong}).exchange("mine");
        return;
      }
      Door door(Socket(root.take_listener(0)), {"rendezvous", 0, 2, kSecret});
      const Socket member = door.wait_for_one(soon());
      send_text(member, MessageKind::welcome, "");
      send_text(member, MessageKind::text, words);
      heard_until_closed(member);
    });
    EXPECT_EQ(errors[1], "rank 0 does not pass on what 2 ranks said") << words;
  }
}

// Strangers come to where rank 0 of the mesh listens, before rank 1 does.
TEST(Strangers, DoNotGetIntoTheMesh) {
  TestRoot root;
  expect_no_errors(run_threads(2, [&](std::int64_t rank) {
    Rendezvous rendezvous({rank, 2, root.address, kSecret, root.take_listener(rank), kLong});
    int exchanges = 0;
    const auto attacked_exchange = [&](const std::string& mine) {
      std::vector<std::string> texts = rendezvous.exchange(mine);
      if (rank == 0 || ++exchanges != 2) return texts;
      const Contact contact = contact_from(texts[0], 0);
      EXPECT_EQ(contact.addresses, std::vector<std::string>{"127.0.0.1"});  // all are on this machine
      const Address address{contact.addresses.front(), contact.port};
      const Socket idle = connected_to(address), garbage = connected_to(address), claims_rank_1 = connected_to(address);
      send_huge_header(garbage);
      EXPECT_EQ(heard_until_closed(garbage), "");
      // The job's secret is not the key of a mesh; the word that it is made of is known to its ranks alone.
      EXPECT_FALSE(prove_to_host(claims_rank_1, {"mesh", 1, 0, 2}, kSecret, soon()).ok());
      return texts;
    };
    const auto sockets =
        connect_mesh({rank, 2, {1 - rank}, rendezvous.own_address(), kSecret, kLong}, attacked_exchange);
    const Socket& other = sockets[1 - rank];
    send_text(other, MessageKind::text, fmt::format("from {}", rank));
    EXPECT_EQ(next_text(other, MessageKind::text), fmt::format("from {}", 1 - rank));
  }));
}

TEST(Liveness, AWordThatIsNoneIsTheLossOfWhoSaidIt) {
  struct Word {
    std::uint32_t kind, rank, by, length;
  };
  for (const Word word : {Word{3, 7, 1, 0}, Word{3, 1, 7, 0}, Word{1, 1, 1, 5000}, Word{3, 1, 1, 0xffffffff}}) {
    TestRoot root;
    expect_no_errors(run_threads(2, [&](std::int64_t rank) {
      Rendezvous rendezvous({rank, 2, root.address, kSecret, root.take_listener(rank), kLong});
      const auto exchange = [&](const std::string& mine) { return rendezvous.exchange(mine); };
      if (rank == 1) {
        const auto sockets = connect_mesh({1, 2, {0}, "", kSecret, kLong}, exchange);
        send_bytes(sockets[0], &word, sizeof word);
        heard_until_closed(sockets[0]);
        return;
      }
      LivenessOptions options;
      options.secret = kSecret;
      const weft::Liveness liveness(0, 2, exchange, options);
      while (!liveness.lost()) std::this_thread::sleep_for(milliseconds(5));
      EXPECT_EQ(liveness.lost()->rank, 1);
      EXPECT_EQ(liveness.lost()->reason, "it does not speak as a rank of weft does");
    }));
  }
}

}  // namespace
}  // namespace weft::tcp
