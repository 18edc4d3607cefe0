#include "comm/tcp/socket.hpp"

#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <array>
#include <chrono>

namespace weft::tcp {
namespace {

// False where this system lacks it or does not let us choose it.
bool choose(const Socket& socket, const std::string& name) {
  return ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0;
}

Socket any_stream() {
  return Socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

TEST(SuitBursts, LeavesAChosenAlgorithmAlone) {
  const Socket socket = any_stream();
  ASSERT_TRUE(choose(socket, "reno"));  // every Linux has it
  suit_bursts(socket);
  EXPECT_EQ(congestion_control(socket), "reno");
}

TEST(SuitBursts, ReplacesOneThatPacesByWhatWasDelivered) {
  const Socket socket = any_stream();
  if (!choose(socket, "bbr")) GTEST_SKIP() << "no bbr here";
  suit_bursts(socket);
  const std::string now = congestion_control(socket);
  EXPECT_TRUE(now == "cubic" || now == "reno") << now;
}

TEST(SuitBursts, ASocketThatIsNoneHasNoAlgorithm) {
  EXPECT_EQ(congestion_control(Socket()), "");
}

// Sends a byte and reads it at the other end.
void pass_on(const Socket& from, const Socket& to) {
  std::array<std::byte, 1> byte{};
  ASSERT_EQ(::send(from.fd(), byte.data(), byte.size(), 0), 1);
  ASSERT_TRUE(wait_for(to, POLLIN, Clock::now() + std::chrono::seconds(10)));
  ASSERT_EQ(::recv(to.fd(), byte.data(), byte.size(), 0), 1);
}

int unacknowledged(const Socket& socket) {
  int bytes = -1;
  ::ioctl(socket.fd(), SIOCOUTQ, &bytes);
  return bytes;
}

// Two that talk in turns acknowledge with their answers, or 40 ms later.
TEST(AcknowledgeNow, DoesNotWaitForAnAnswer) {
  const Socket listener = listen_on({"127.0.0.1", 0});
  Socket sender;
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(10);
  ASSERT_TRUE(connect_to({"127.0.0.1", local_address(listener).port}, deadline, sender).ok());
  Socket receiver;
  ASSERT_TRUE(wait_for(listener, POLLIN, deadline));
  ASSERT_TRUE(accept_from(listener, receiver).ok());
  for (int i = 0; i < 50; ++i) {
    pass_on(sender, receiver);
    pass_on(receiver, sender);
  }
  pass_on(sender, receiver);
  acknowledge_now(receiver);
  EXPECT_EQ(unacknowledged(sender), 0);
}

}  // namespace
}  // namespace weft::tcp
