#include "comm/tcp/receive_window.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <limits>

namespace weft::tcp {
namespace {

struct Pair {
  Socket near, far;
};

// Joined through loopback, with a round trip that the system has measured.
Pair connected() {
  const Socket listener = listen_on({"127.0.0.1", 0});
  Pair pair;
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(5);
  EXPECT_TRUE(connect_to(local_address(listener), deadline, pair.near).ok());
  EXPECT_TRUE(wait_for(listener, POLLIN, deadline));
  EXPECT_TRUE(accept_from(listener, pair.far).ok());
  std::array<char, 1> byte{};
  EXPECT_EQ(::send(pair.near.fd(), byte.data(), 1, 0), 1);
  EXPECT_TRUE(wait_for(pair.far, POLLIN, deadline));
  EXPECT_EQ(::recv(pair.far.fd(), byte.data(), 1, 0), 1);
  return pair;
}

int receive_buffer(const Socket& socket) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  EXPECT_EQ(::getsockopt(socket.fd(), SOL_SOCKET, SO_RCVBUF, &bytes, &size), 0);
  return bytes;
}

TEST(ReceiveWindow, IsSmallAtFirstAndStaysSoWhereDataComesSlowly) {
  const Pair pair = connected();
  ReceiveWindow window(pair.near);
  EXPECT_EQ(receive_buffer(pair.near), 64 << 10);  // Linux doubles it
  EXPECT_LE(window.min_read_bytes(), 16 << 10);
  Clock::time_point now;
  for (int i = 0; i < 1000; ++i) window.received(16 << 10, now += std::chrono::milliseconds(16));  // 1 MB/s
  EXPECT_LE(window.min_read_bytes(), 16 << 10);
}

TEST(ReceiveWindow, IsGivenBackWhereDataComesFastForTheRoundTrip) {
  const Pair pair = connected();
  ReceiveWindow window(pair.near);
  Clock::time_point now;
  for (int i = 0; i < 100; ++i) window.received(1 << 20, now += std::chrono::microseconds(1));  // 1 TB/s
  EXPECT_EQ(window.min_read_bytes(), std::numeric_limits<std::int64_t>::max());
}

}  // namespace
}  // namespace weft::tcp
