#include "comm/tcp/receive_window.hpp"

#include <linux/tcp.h>  // unlike netinet/tcp.h, its tcp_info has the shortest round trip
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <limits>

namespace weft::tcp {
namespace {

// Linux doubles the size for its own bookkeeping; a sender sees 56 KiB of it.
constexpr int kSmallBufferBytes = 32 << 10;
constexpr std::int64_t kWindowBytes = 56 << 10, kMinReadBytes = 16 << 10;
constexpr std::int64_t kRateSampleBytes = 128 << 10;  // over which the rate is measured
// A window of fewer round trips at the sampled rate is too small: threads wake late, so it would hold the sender back.
constexpr double kMinRoundTripsPerWindow = 16;

#ifndef SO_BUF_LOCK  // Linux 5.15; C libraries before do not name it
constexpr int SO_BUF_LOCK = 72;
#endif

double shortest_round_trip(const Socket& socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket.fd(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return info.tcpi_min_rtt * 1e-6;
}

}  // namespace

ReceiveWindow::ReceiveWindow(const Socket& socket) : socket_(socket) {
  small_ = ::setsockopt(socket.fd(), SOL_SOCKET, SO_RCVBUF, &kSmallBufferBytes, sizeof kSmallBufferBytes) == 0;
}

void ReceiveWindow::received(std::int64_t bytes, Clock::time_point now) {
  if (!small_) return;
  if (bytes_ == 0) since_ = now;
  bytes_ += bytes;
  if (bytes_ < kRateSampleBytes) return;
  const double passed = std::chrono::duration<double>(now - since_).count();
  const auto got = static_cast<double>(bytes_);
  bytes_ = 0;
  if (got * shortest_round_trip(socket_) * kMinRoundTripsPerWindow > kWindowBytes * passed) release();
}

std::int64_t ReceiveWindow::min_read_bytes() const {
  return small_ ? kMinReadBytes : std::numeric_limits<std::int64_t>::max();
}

void ReceiveWindow::release() {
  small_ = false;
  const int nothing = 0;
  if (::setsockopt(socket_.fd(), SOL_SOCKET, SO_BUF_LOCK, &nothing, sizeof nothing) == 0) return;
  const int largest = 4 << 20;  // or what the system allows
  ::setsockopt(socket_.fd(), SOL_SOCKET, SO_RCVBUF, &largest, sizeof largest);
}

}  // namespace weft::tcp
