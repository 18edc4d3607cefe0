#include "comm/tcp/socket.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/error.hpp"
#include "base/text.hpp"

namespace weft::tcp {

namespace {

sockaddr_in any_address(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  return address;
}

Outcome resolve(const Address& address, sockaddr_in& out) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.host.c_str(), nullptr, &hints, &found);
  if (error != 0 || found == nullptr)
    return {fmt::format("cannot resolve '{}': {}", address.host, gai_strerror(error))};
  out = *reinterpret_cast<const sockaddr_in*>(found->ai_addr);
  out.sin_port = htons(address.port);
  freeaddrinfo(found);
  return {};
}

Socket stream_socket() {
  Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket) suit_bursts(socket);  // otherwise errno says why
  return socket;
}

void set_no_delay(const Socket& socket) {
  const int on = 1;
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

std::string error_text(int error) {
  return std::generic_category().message(error);
}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = other.release();
  }
  return *this;
}

int Socket::release() {
  return std::exchange(fd_, -1);
}

void Socket::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

std::string Address::text() const {
  return fmt::format("{}:{}", host, port);
}

Address parse_address(std::string_view text, std::string_view what) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == text.size()) {
    fail("{}: '{}' is no address; expected host:port, e.g. node01:29500", what, text);
  }
  const std::int64_t port = parse_integer(text.substr(colon + 1), what);
  if (port < 0 || port > 65535) fail("{}: port {} of '{}' is not in 0..65535", what, port, text);
  return {std::string(text.substr(0, colon)), static_cast<std::uint16_t>(port)};
}

Socket listen_on(const Address& address) {
  sockaddr_in place = any_address(address.port);
  if (!address.host.empty()) {
    const Outcome resolved = resolve(address, place);
    if (!resolved.ok()) fail("{}: {}", address.text(), resolved.reason);
  }
  Socket socket = stream_socket();
  const int on = 1;
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (!socket || ::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0 ||
      ::listen(socket.fd(), SOMAXCONN) != 0) {
    fail("{}: cannot listen here: {}", address.text(), error_text(errno));
  }
  return socket;
}

Address local_address(const Socket& socket) {
  sockaddr_in place{};
  socklen_t length = sizeof place;
  if (::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&place), &length) != 0) return {};
  return {dotted(ntohl(place.sin_addr.s_addr)), ntohs(place.sin_port)};
}

void allow_open_files(std::int64_t count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= static_cast<rlim_t>(count)) return;
  limit.rlim_cur = std::min(limit.rlim_max, static_cast<rlim_t>(count));
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Outcome accept_from(const Socket& listener, Socket& socket) {
  while (true) {
    socket = Socket(::accept4(listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket) {
      set_no_delay(socket);
      return {};
    }
    if (errno == EAGAIN) return {};
    if (errno != EINTR && errno != ECONNABORTED) return {error_text(errno)};  // the next connection may succeed
  }
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host.starts_with("127.");
}

Outcome connect_to(const Address& address, Clock::time_point deadline, Socket& socket) {
  sockaddr_in place{};
  Outcome resolved = resolve(address, place);
  if (!resolved.ok()) return resolved;
  Socket fresh = stream_socket();
  if (!fresh) return {error_text(errno)};
  set_no_delay(fresh);
  if (::connect(fresh.fd(), reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) return {error_text(errno)};
    if (!wait_for(fresh, POLLOUT, deadline)) return {"no answer"};
    int error = 0;
    socklen_t length = sizeof error;
    ::getsockopt(fresh.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return {error_text(error)};
  }
  // Where nobody listens on this machine, a connection to a port that the system also gave to us may meet itself.
  if (local_address(fresh) == Address{dotted(ntohl(place.sin_addr.s_addr)), address.port}) return {"nobody listens"};
  socket = std::move(fresh);
  return {};
}

int poll_milliseconds(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 1'000'000'000));
}

std::string congestion_control(const Socket& socket) {
  std::array<char, 32> name{};  // as the kernel bounds it, with room for the end
  auto length = static_cast<socklen_t>(name.size() - 1);
  if (::getsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) != 0) return {};
  return name.data();
}

void suit_bursts(const Socket& socket) {
  if (!congestion_control(socket).starts_with("bbr")) return;
  for (const std::string_view name : {"cubic", "reno"}) {
    const auto length = static_cast<socklen_t>(name.size());
    if (::setsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name.data(), length) == 0) return;
  }
}

void pace(const Socket& socket) {
  const std::uint64_t highest = 1'000'000'000'000;  // any rate makes Linux pace by itself
  ::setsockopt(socket.fd(), SOL_SOCKET, SO_MAX_PACING_RATE, &highest, sizeof highest);
}

void acknowledge_now(const Socket& socket) {
  const int yes = 1;
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_QUICKACK, &yes, sizeof yes);
}

void open_windows_freely(const Socket& socket) {
  constexpr std::string_view kReno = "reno";
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, kReno.data(), static_cast<socklen_t>(kReno.size()));
}

bool wait_for(const Socket& socket, short events, Clock::time_point deadline) {
  while (true) {
    pollfd watched{socket.fd(), events, 0};
    const int count = ::poll(&watched, 1, poll_milliseconds(deadline));
    if (count > 0) return true;
    if (Clock::now() >= deadline) return false;
  }
}

std::vector<Interface> interfaces() {
  std::vector<Interface> found;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_netmask == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    if ((one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    found.push_back({ntohl(reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr.s_addr),
                     ntohl(reinterpret_cast<const sockaddr_in*>(one->ifa_netmask)->sin_addr.s_addr)});
  }
  ::freeifaddrs(list);
  return found;
}

std::string dotted(std::uint32_t address) {
  return fmt::format("{}.{}.{}.{}", address >> 24, (address >> 16) & 255, (address >> 8) & 255, address & 255);
}

std::uint32_t from_dotted(const std::string& text) {
  in_addr address{};
  return ::inet_pton(AF_INET, text.c_str(), &address) == 1 ? ntohl(address.s_addr) : 0;
}

}  // namespace weft::tcp
