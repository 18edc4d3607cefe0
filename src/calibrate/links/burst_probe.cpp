#include "calibrate/links/burst_probe.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>
#include <vector>

namespace weft {
namespace {

using tcp::Clock;

constexpr std::chrono::seconds kMaxStandstill{2};
constexpr std::int64_t kMinBytes = 256 << 10, kMaxBytes = 4 << 20;  // bytes of an answer
constexpr double kPauseBytes = 512 << 10;                           // what the link could carry in a pause
constexpr double kMinPauseSeconds = 0.02, kMaxPauseSeconds = 0.5;   // seconds
constexpr std::size_t kAnswers = 11;
// In seconds: a smaller difference is noise and no burst.
constexpr double kNoiseSeconds = 0.3e-3;

// Returns false where the other side has left or stands still.
bool send_all(const tcp::Socket& socket, const std::byte* data, std::int64_t size) {
  while (size > 0) {
    if (!tcp::wait_for(socket, POLLOUT, Clock::now() + kMaxStandstill)) return false;
    const ssize_t wrote = ::send(socket.fd(), data, static_cast<std::size_t>(size), MSG_NOSIGNAL);
    if (wrote < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (wrote > 0) data += wrote, size -= wrote;
  }
  return true;
}

bool receive_all(const tcp::Socket& socket, std::byte* data, std::int64_t size) {
  while (size > 0) {
    if (!tcp::wait_for(socket, POLLIN, Clock::now() + kMaxStandstill)) return false;
    const ssize_t got = ::recv(socket.fd(), data, static_cast<std::size_t>(size), 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
    if (got > 0) data += got, size -= got;
  }
  return true;
}

bool send_number(const tcp::Socket& socket, std::int64_t number) {
  const auto bytes = std::bit_cast<std::array<std::byte, sizeof number>>(number);
  return send_all(socket, bytes.data(), std::ssize(bytes));
}

// Returns the seconds until an answer of this size has arrived: the median of several, each after a pause.
std::optional<double> answer_time(const tcp::Socket& socket, std::int64_t size, double pause) {
  std::vector<std::byte> answer(size);
  std::array<double, kAnswers> times{};
  for (double& time : times) {
    std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    const Clock::time_point asked = Clock::now();
    if (!send_number(socket, size) || !receive_all(socket, answer.data(), size)) return std::nullopt;
    time = std::chrono::duration<double>(Clock::now() - asked).count();
  }
  std::nth_element(times.begin(), times.begin() + kAnswers / 2, times.end());
  return times[kAnswers / 2];
}

}  // namespace

Bytes ask_for_bursts(ProbeDoor& door, double rate) {
  const tcp::Socket socket = door.admit();
  if (!socket) return {};
  const double pause = std::clamp(kPauseBytes / rate, kMinPauseSeconds, kMaxPauseSeconds);
  const std::optional<double> small = answer_time(socket, 1, pause);
  for (std::int64_t size = kMinBytes; small && size <= kMaxBytes; size *= 4) {
    const std::optional<double> time = answer_time(socket, size, pause);
    if (!time) return {};
    const double steady = static_cast<double>(size) / rate, moving = *time - *small;
    if (moving < steady / 4) continue;  // almost all of it went through at once
    (void)send_number(socket, 0);
    const double saved = steady - moving;
    return saved > kNoiseSeconds ? Bytes{std::llround(saved * rate)} : Bytes{};
  }
  return {};
}

void answer_in_bursts(const ProbeDoor& door) {
  const tcp::Socket socket = door.enter();
  if (!socket) return;
  const std::vector<std::byte> answer(kMaxBytes);
  std::array<std::byte, sizeof(std::int64_t)> asked{};
  while (receive_all(socket, asked.data(), std::ssize(asked))) {
    const auto size = std::bit_cast<std::int64_t>(asked);
    if (size <= 0 || size > kMaxBytes || !send_all(socket, answer.data(), size)) return;
  }
}

}  // namespace weft
