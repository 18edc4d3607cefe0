#include "comm/tcp/mesh.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "comm/tcp/message.hpp"

namespace weft::tcp {

namespace {

constexpr std::chrono::seconds kAttemptTime{5};  // for one address; a machine may have some that nobody reaches

// What a rank tells the others of itself.
struct Contact {
  std::string nonce;  // rank 0's counts
  std::string host;   // equal where two ranks can talk over loopback
  std::uint16_t port = 0;
  std::vector<std::string> addresses;
};

std::string random_word() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
}

// The machine since it started, and the network namespace: loopback is shared by those who share both.
std::string host_identity() {
  std::string boot = "?";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char space[64] = {};
  const ssize_t length = ::readlink("/proc/self/ns/net", space, sizeof space - 1);
  return fmt::format("{}/{}", boot, std::string_view(space, length > 0 ? static_cast<std::size_t>(length) : 0));
}

Contact own_contact(const Socket& listener, const std::string& first_address) {
  Contact contact{random_word(), host_identity(), local_address(listener).port, {}};
  if (!first_address.empty() && !first_address.starts_with("127.")) contact.addresses.push_back(first_address);
  for (const Interface& one : interfaces()) contact.addresses.push_back(dotted(one.address));
  return contact;
}

std::string to_text(const Contact& contact) {
  return fmt::format("{} {} {} {}", contact.nonce, contact.host, contact.port, fmt::join(contact.addresses, " "));
}

Contact contact_from(const std::string& text) {
  Contact contact;
  std::istringstream words(text);
  words >> contact.nonce >> contact.host >> contact.port;
  for (std::string address; words >> address;) contact.addresses.push_back(address);
  return contact;
}

// Loopback on one machine; otherwise addresses on a network that we are on come first.
std::vector<Address> candidates(const Contact& own, const Contact& other) {
  std::vector<std::string> hosts = other.addresses;
  const std::vector<Interface> here = interfaces();
  std::stable_partition(hosts.begin(), hosts.end(), [&](const std::string& host) {
    const std::uint32_t there = from_dotted(host);
    return std::any_of(here.begin(), here.end(),
                       [&](const Interface& one) { return ((one.address ^ there) & one.mask) == 0; });
  });
  if (own.host == other.host) hosts.insert(hosts.begin(), "127.0.0.1");
  std::vector<Address> addresses;
  for (const std::string& host : hosts) addresses.push_back({host, other.port});
  return addresses;
}

class MeshBuilder {
 public:
  MeshBuilder(const MeshOptions& options, const Exchange& exchange)
      : options_(options), listener_(listen_on({"", 0})), sockets_(static_cast<std::size_t>(options.size)) {
    own_ = own_contact(listener_, options.own_address);
    for (const std::string& text : exchange(to_text(own_))) contacts_.push_back(contact_from(text));
    WEFT_CHECK(static_cast<std::int64_t>(contacts_.size()) == options.size);
    deadline_ = Clock::now() + options.timeout;
  }

  // The higher rank of a pair connects. Rank 0 accepts at once, then rank 1, ...: nobody waits in a circle.
  std::vector<Socket> build() {
    for (const std::int64_t peer : options_.neighbours) {
      if (peer < options_.rank) connect_to_peer(peer);
    }
    accept_higher_ranks();
    return std::move(sockets_);
  }

 private:
  struct Visitor {
    Socket socket;
    MessageReader reader;
  };

  std::string greeting(std::int64_t from, std::int64_t to) const {
    return fmt::format("{} {} {}", contacts_[0].nonce, from, to);
  }

  void connect_to_peer(std::int64_t peer) {
    const Contact& contact = contacts_[static_cast<std::size_t>(peer)];
    std::string obstacles;
    while (Clock::now() < deadline_) {
      obstacles.clear();
      for (const Address& address : candidates(own_, contact)) {
        Socket socket;
        const Outcome outcome = greet(address, peer, socket);
        if (outcome.ok()) {
          sockets_[static_cast<std::size_t>(peer)] = std::move(socket);
          return;
        }
        obstacles += fmt::format("; {}: {}", address.text(), outcome.reason);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    throw RunFailed(fmt::format("rank {} could not connect to rank {}{}", options_.rank, peer, obstacles));
  }

  Outcome greet(const Address& address, std::int64_t peer, Socket& socket) {
    Outcome outcome = connect_to(address, std::min(deadline_, Clock::now() + kAttemptTime), socket);
    if (outcome.ok()) {
      outcome = send_message(socket, MessageKind::greeting, greeting(options_.rank, peer), deadline_);
    }
    MessageReader reader;
    if (outcome.ok()) outcome = reader.read_until(socket, deadline_);
    if (outcome.ok() && reader.kind() != MessageKind::welcome) outcome.reason = "somebody else listens there";
    return outcome;
  }

  std::vector<std::int64_t> awaited() const {
    std::vector<std::int64_t> ranks;
    for (const std::int64_t peer : options_.neighbours) {
      if (peer > options_.rank && !sockets_[static_cast<std::size_t>(peer)]) ranks.push_back(peer);
    }
    return ranks;
  }

  void accept_higher_ranks() {
    std::vector<Visitor> visitors;
    while (true) {
      const std::vector<std::int64_t> missing = awaited();
      if (missing.empty()) return;
      if (Clock::now() >= deadline_) {
        throw RunFailed(
            fmt::format("rank {} waited in vain for a connection of rank {}", options_.rank, fmt::join(missing, ", ")));
      }
      std::vector<pollfd> watched{{listener_.fd(), POLLIN, 0}};
      for (const Visitor& visitor : visitors) watched.push_back({visitor.socket.fd(), POLLIN, 0});
      ::poll(watched.data(), watched.size(), poll_milliseconds(deadline_));
      while (Socket socket = accept_from(listener_)) visitors.push_back({std::move(socket), {}});
      std::erase_if(visitors, [&](Visitor& visitor) { return hear(visitor); });
    }
  }

  // Whether the visitor is dealt with.
  bool hear(Visitor& visitor) {
    const MessageReader::Status status = visitor.reader.read(visitor.socket);
    if (status == MessageReader::Status::more) return false;
    if (status == MessageReader::Status::broken || visitor.reader.kind() != MessageKind::greeting) return true;
    for (const std::int64_t peer : options_.neighbours) {
      if (peer < options_.rank || visitor.reader.text() != greeting(peer, options_.rank)) continue;
      if (send_message(visitor.socket, MessageKind::welcome, "", deadline_).ok()) {
        sockets_[static_cast<std::size_t>(peer)] = std::move(visitor.socket);
      }
    }
    return true;
  }

  const MeshOptions& options_;
  Socket listener_;
  Contact own_;
  std::vector<Contact> contacts_;
  std::vector<Socket> sockets_;
  Clock::time_point deadline_;
};

}  // namespace

std::vector<Socket> connect_mesh(const MeshOptions& options, const Exchange& exchange) {
  return MeshBuilder(options, exchange).build();
}

std::vector<std::int64_t> all_others(std::int64_t rank, std::int64_t size) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t other = 0; other < size; ++other) {
    if (other != rank) ranks.push_back(other);
  }
  return ranks;
}

}  // namespace weft::tcp
