#include "comm/transport_choice.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/text.hpp"
#include "comm/rank_health.hpp"
#include "comm/tcp/proof.hpp"
#include "comm/tcp/socket.hpp"
#include "comm/tcp/tcp_transport.hpp"

namespace weft {
namespace {

using Clock = Transport::Clock;

// TCP is chosen where it reaches at least this fraction of the library's rate, because then the library uses TCP too.
constexpr double kTcpPreferredFrom = 0.8;
constexpr std::int64_t kProbeBytes = 2 << 20;
constexpr std::size_t kSecretBytes = 32;
constexpr std::int64_t kProbeChannel = (1 << 20) - 1;

// Sends messages over TCP and leaves native collectives to the library.
class TcpBesideMpi final : public Transport, private RankHealth {
 public:
  TcpBesideMpi(std::unique_ptr<Transport> tcp, std::unique_ptr<Transport> mpi)
      : tcp_(std::move(tcp)), mpi_(std::move(mpi)) {}

  std::int64_t rank() const override { return tcp_->rank(); }
  std::int64_t size() const override { return tcp_->size(); }
  Ticket send(std::int64_t peer, std::int64_t channel, std::span<const Segment> src) override {
    return tcp_->send(peer, channel, src);
  }
  Ticket receive(std::int64_t peer, std::int64_t channel, const Landing& landing) override {
    return tcp_->receive(peer, channel, landing);
  }
  bool done(Ticket ticket) override { return tcp_->done(ticket); }
  void pause(Clock::time_point until) override { tcp_->pause(until); }
  void wake() override { tcp_->wake(); }
  std::uint64_t moved() const override { return tcp_->moved(); }
  TransportFeatures features() override {
    TransportFeatures both = tcp_->features();
    both.health = this;
    both.library = mpi_->features().library;
    return both;
  }

 private:
  RankHealth& over_tcp() const { return *tcp_->features().health; }
  std::optional<LostRank> lost() const override { return over_tcp().lost(); }
  void give_up(const std::string& why) override {
    over_tcp().give_up(why);
    if (RankHealth* const through_mpi = mpi_->features().health) through_mpi->give_up(why);
  }
  std::chrono::nanoseconds silence(std::int64_t rank) const override { return over_tcp().silence(rank); }
  void declare_lost(const LostRank& silent) override { over_tcp().declare_lost(silent); }

  std::unique_ptr<Transport> tcp_, mpi_;
};

// Processes with the same word share memory and loopback.
std::string host_word() {
  std::array<char, 256> host{}, space{};
  ::gethostname(host.data(), host.size() - 1);
  [[maybe_unused]] const ssize_t length = ::readlink("/proc/self/ns/net", space.data(), space.size() - 1);
  return fmt::format("{} {}", host.data(), space.data());
}

std::string interfaces_text() {
  std::string text;
  for (const tcp::Interface& interface : tcp::interfaces())
    text += fmt::format("{}/{} ", interface.address, interface.mask);
  return text;
}

std::vector<tcp::Interface> parse_interfaces(const std::string& text) {
  std::vector<tcp::Interface> result;
  for (const std::string& item : split(text, ' ')) {
    const auto parts = split(item, '/');
    if (parts.size() != 2) continue;
    result.push_back({static_cast<std::uint32_t>(parse_integer(parts[0], "interface")),
                      static_cast<std::uint32_t>(parse_integer(parts[1], "interface"))});
  }
  return result;
}

// An address of rank 0 in a subnet in which every rank has one; empty where there is none.
std::string common_address(const std::vector<std::string>& all) {
  for (const tcp::Interface& candidate : parse_interfaces(all.front())) {
    const bool shared = std::all_of(all.begin(), all.end(), [&](const std::string& text) {
      const auto theirs = parse_interfaces(text);
      return std::any_of(theirs.begin(), theirs.end(), [&](const tcp::Interface& other) {
        return (other.address & candidate.mask) == (candidate.address & candidate.mask);
      });
    });
    if (shared) return tcp::dotted(candidate.address);
  }
  return "";
}

std::unique_ptr<Transport> make_tcp(MpiSession& session, const std::string& address) {
  TcpOptions options;
  options.rank = session.rank();
  options.size = session.size();
  std::string root;
  if (options.rank == 0) {
    tcp::Socket listener = tcp::listen_on({address, 0});
    root = tcp::local_address(listener).text();
    options.root_listener = listener.release();
  }
  options.root = session.exchange(root).front();
  options.secret = session.exchange(options.rank == 0 ? tcp::random_hex(kSecretBytes) : "").front();
  return make_tcp_transport(options);
}

void finish(Transport& transport, Ticket ticket) {
  while (!transport.done(ticket)) transport.pause(Clock::now() + std::chrono::milliseconds(50));
}

// Measures bytes per second from `sender` to rank 0 by the second of two messages. Returns 0 on all other ranks.
double probe(Transport& transport, std::int64_t sender) {
  std::vector<std::byte> buffer(static_cast<std::size_t>(kProbeBytes));
  const std::array<Segment, 1> segment = {Segment{buffer.data(), kProbeBytes}};
  double rate = 0;
  for (int message = 0; message < 2; ++message) {
    const Clock::time_point begin = Clock::now();
    if (transport.rank() == sender) finish(transport, transport.send(0, kProbeChannel, segment));
    if (transport.rank() == 0)
      finish(transport, transport.receive(sender, kProbeChannel, {.dst = segment, .operand = {}}));
    rate = static_cast<double>(kProbeBytes) / std::chrono::duration<double>(Clock::now() - begin).count();
  }
  return transport.rank() == 0 ? rate : 0;
}

}  // namespace

ChosenTransport choose_transport(const std::shared_ptr<MpiSession>& session, const MpiOptions& mpi_options,
                                 TransportWish wish) {
  const std::vector<std::string> hosts = session->exchange(host_word());
  const auto other =
      std::find_if(hosts.begin(), hosts.end(), [&](const std::string& host) { return host != hosts.front(); });
  MpiOptions by_place = mpi_options;
  by_place.one_machine = other == hosts.end();
  auto mpi = make_mpi_transport(session, by_place);
  std::string address = common_address(session->exchange(interfaces_text()));
  if (other == hosts.end()) address = "127.0.0.1";
  if (wish == TransportWish::tcp && address.empty())
    fail("--transport tcp: no network reaches all {} processes", hosts.size());
  if (wish == TransportWish::mpi || address.empty() || (wish == TransportWish::automatic && other == hosts.end())) {
    return {std::move(mpi), "messages through MPI"};
  }
  auto tcp = make_tcp(*session, address);
  if (wish == TransportWish::tcp) {
    return {std::make_unique<TcpBesideMpi>(std::move(tcp), std::move(mpi)), "messages over TCP sockets"};
  }
  const double through_mpi = probe(*mpi, other - hosts.begin()), over_tcp = probe(*tcp, other - hosts.begin());
  const std::string decision = session
                                   ->exchange(over_tcp >= kTcpPreferredFrom * through_mpi
                                                  ? fmt::format("messages over TCP sockets ({:.1f} MB/s, MPI {:.1f})",
                                                                over_tcp * 1e-6, through_mpi * 1e-6)
                                                  : "")
                                   .front();
  if (decision.empty()) return {std::move(mpi), "messages through MPI"};
  return {std::make_unique<TcpBesideMpi>(std::move(tcp), std::move(mpi)), decision};
}

}  // namespace weft
