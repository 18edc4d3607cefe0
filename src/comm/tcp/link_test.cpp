// Frames that no rank of ours sends: the link closes in words, and nothing is read or written beside its place.
#include "comm/tcp/link.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

namespace weft::tcp {
namespace {

struct Frame {
  std::uint32_t kind, channel;
  std::uint64_t slice, total;
};
constexpr std::uint32_t kData = 0x77656601, kReady = 0x77656602;

// What the link of rank 0 says of its end after these frames of rank 1.
std::string words_after(const std::vector<Frame>& frames) {
  const Socket listener = listen_on({"127.0.0.1", 0});
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(10);
  Socket near, far;
  EXPECT_TRUE(connect_to(local_address(listener), deadline, far).ok());
  EXPECT_TRUE(wait_for(listener, POLLIN, deadline));
  EXPECT_TRUE(accept_from(listener, near).ok());
  const std::size_t bytes = frames.size() * sizeof(Frame);
  EXPECT_EQ(::send(far.fd(), frames.data(), bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  Scratch scratch;
  Link link(0, 1, std::move(near), scratch, LinkKind::small_messages, true);
  while (link.open() && Clock::now() < deadline) {
    link.set_ready(true, false);
    link.read();
  }
  return link.closed();
}

TEST(MalformedFrames, AskForMoreMessagesThanThereCanBe) {
  EXPECT_EQ(words_after({{kReady, 5, std::uint64_t{1} << 63, 0}}),
            "rank 1 asked for 9223372036854775808 messages at once (channel 5)");
  EXPECT_EQ(words_after({{kReady, 5, 1, std::uint64_t{1} << 63}}), "rank 1 asked for 1 messages at once (channel 5)");
}

TEST(MalformedFrames, SpeakOfAChannelThatIsNone) {
  for (const std::uint32_t kind : {kData, kReady}) {
    EXPECT_EQ(words_after({{kind, 1 << 20, 0, 0}}),
              "rank 1 sent a frame of channel 1048576, which is not in 0..1048575");
  }
}

TEST(MalformedFrames, ArePiecesOfASmallMessage) {
  EXPECT_EQ(words_after({{kData, 5, 0, 100}}), "rank 1 sent what nobody asked for (channel 5, 100 bytes)");
}

TEST(MalformedFrames, AreLongerThanTheyAnnounce) {
  EXPECT_EQ(words_after({{kData, 5, 200, 100}}), "rank 1 sent what nobody asked for (channel 5, 100 bytes)");
  EXPECT_EQ(words_after({{kData, 5, 0, ~std::uint64_t{0}}}), "rank 1 sent what nobody asked for (channel 5, -1 bytes)");
  EXPECT_EQ(words_after({{kData, 5, 100'000, 100'000}}), "rank 1 sent what nobody asked for (channel 5, 100000 bytes)");
}

TEST(MalformedFrames, AreOfUnknownKind) {
  EXPECT_EQ(words_after({{7, 5, 0, 0}}), "rank 1 sent a frame of unknown kind");
}

}  // namespace
}  // namespace weft::tcp
