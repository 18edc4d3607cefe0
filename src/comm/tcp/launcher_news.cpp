#include "comm/tcp/launcher_news.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/error.hpp"

namespace weft::tcp {

std::pair<Socket, Socket> open_launcher_news() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    fail("cannot make a socket for the ranks: {}", error_text(errno));
  }
  return {Socket(ends[0]), Socket(ends[1])};
}

void tell_ranks(const Socket& launcher_end, const std::string& words) {
  // All ranks may have ended, so a failure to send is ignored.
  [[maybe_unused]] const ssize_t sent = ::send(launcher_end.fd(), words.data(), words.size(), MSG_NOSIGNAL);
}

LauncherNews::LauncherNews(int fd, std::chrono::milliseconds delay, std::function<void(const std::string&)> on_news)
    : news_(fd), stop_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd < 0) return;
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  thread_ = std::thread([this, delay, on_news = std::move(on_news)] { watch(delay, on_news); });
}

LauncherNews::~LauncherNews() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.fd(), &one, sizeof one);
  thread_.join();
}

void LauncherNews::watch(std::chrono::milliseconds delay,
                         const std::function<void(const std::string&)>& on_news) const {
  std::array<pollfd, 2> watched{{{stop_.fd(), POLLIN, 0}, {news_.fd(), POLLIN, 0}}};
  while (::poll(watched.data(), watched.size(), -1) < 0 && errno == EINTR) {
  }
  if (watched[0].revents != 0 || wait_for(stop_, POLLIN, Clock::now() + delay)) return;
  // An end without words means that the launcher is gone, and this rank will be soon.
  if (const auto said = words()) on_news(*said);
}

std::optional<std::string> LauncherNews::words() const {
  std::array<char, 512> text{};
  const ssize_t length = ::recv(news_.fd(), text.data(), text.size(), MSG_PEEK);
  if (length <= 0) return std::nullopt;
  return std::string(text.data(), static_cast<std::size_t>(length));
}

}  // namespace weft::tcp
