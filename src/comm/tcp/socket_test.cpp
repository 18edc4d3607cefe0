#include "comm/tcp/socket.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

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

}  // namespace
}  // namespace weft::tcp
