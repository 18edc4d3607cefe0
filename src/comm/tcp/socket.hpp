// Sockets as values: opened, connected, read and written with a deadline. The one place that knows the system calls of
// connecting. IPv4. Every socket is non-blocking and is closed by exec.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::tcp {

using Clock = std::chrono::steady_clock;

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { close(); }

  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release();
  void close();

 private:
  int fd_ = -1;
};

struct Address {
  std::string host;
  std::uint16_t port = 0;
  std::string text() const;
  friend bool operator==(const Address&, const Address&) = default;
};

// "host:port". Throws Error; `what` opens the message.
Address parse_address(std::string_view text, std::string_view what);

// Port 0 takes a free one. An empty host listens on every interface. Throws Error.
Socket listen_on(const Address& address);
// As the socket itself sees it, in numbers.
Address local_address(const Socket& socket);
// Raises this process's limit of open files to so many, as far as the system lets it.
void allow_open_files(std::int64_t count);
// How a blocking helper ended: an empty reason is success.
struct [[nodiscard]] Outcome {
  std::string reason;
  bool ok() const { return reason.empty(); }
};

// Returns the next waiting connection, or none. A reason says that connections cannot be accepted for now, for instance
// because this process may open no more files.
Outcome accept_from(const Socket& listener, Socket& socket);

// One attempt to connect.
Outcome connect_to(const Address& address, Clock::time_point deadline, Socket& socket);

bool is_loopback(const std::string& host);
inline constexpr const char* kLoopback = "127.0.0.1";

// How the system paces what a connection sends: "cubic", "bbr"; empty where it does not say.
std::string congestion_control(const Socket& socket);
// Links carry bursts with pauses between. BBR takes its rate from what was delivered last, which after a pause or
// beside another stream is too little, and holds every burst below the link's rate (0.7 to 0.95 of it at 200 Mbit). It
// also makes the system pace the connection, which stays so when another takes its place: so it must be chosen before
// connecting. Every socket that is opened here gets cubic, or reno, which everybody may choose, where BBR is the
// system's default. Any other choice is left alone.
void suit_bursts(const Socket& socket);

// Spreads what is sent over the round trip, by the congestion control's estimate: long streams that meet
// then leave each other's packets, and acknowledgements, a way through.
void pace(const Socket& socket);
// Linux acknowledges the end of a stream 40 ms late, takes the delay into the round trip, and paces by that: the first
// packets of the next message would leave at a fraction of the link's rate. To be called where a message ended.
void acknowledge_now(const Socket& socket);
// Where the receiver holds the window small, the sender's own may be as large: cubic stops opening it as soon as the
// round trip grows (HyStart), which a queue of a few packets on a slow link does, and paces by what it stopped at. Reno
// does not.
void open_windows_freely(const Socket& socket);

// Whether the system reports events (poll's POLLIN, POLLOUT) before the deadline; errors count as events.
bool wait_for(const Socket& socket, short events, Clock::time_point deadline);
// Milliseconds as poll wants them, rounded up.
int poll_milliseconds(Clock::time_point deadline);

// The addresses of this machine's interfaces that are up, loopback left out, and their masks, in host byte order.
struct Interface {
  std::uint32_t address = 0;
  std::uint32_t mask = 0;
  friend bool operator==(const Interface&, const Interface&) = default;
};
std::vector<Interface> interfaces();
std::string dotted(std::uint32_t address);
// 0 where the text is no address in numbers.
std::uint32_t from_dotted(const std::string& text);

std::string error_text(int error);

}  // namespace weft::tcp
