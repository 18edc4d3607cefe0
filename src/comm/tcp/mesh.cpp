#include "comm/tcp/mesh.hpp"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "comm/tcp/contact.hpp"
#include "comm/tcp/door.hpp"
#include "comm/tcp/handshake.hpp"
#include "comm/tcp/message.hpp"
#include "comm/tcp/proof.hpp"

namespace weft::tcp {

namespace {

constexpr std::chrono::seconds kAttemptTime{5};  // for one address; some addresses of a machine may be unreachable
constexpr std::chrono::milliseconds kRetryPeriod{50};
constexpr const char* kPurpose = "mesh";
constexpr std::size_t kWordBytes = 32;

class MeshBuilder {
 public:
  MeshBuilder(const MeshOptions& options, const Exchange& exchange)
      : options_(options), sockets_(static_cast<std::size_t>(options.size)) {
    tell_location(exchange);
    Socket listener = listen_on({listening_address(locations_, options.rank), 0});
    tell_contact(exchange, local_address(listener));
    door_.emplace(std::move(listener), DoorOptions{kPurpose, options.rank, options.size, key_});
    deadline_ = Clock::now() + options.timeout;
  }

  // The higher rank of a pair connects. Rank 0 accepts at once, then rank 1, and so on, so the waits form no cycle.
  std::vector<Socket> build() {
    for (const std::int64_t peer : options_.neighbours) {
      if (peer < options_.rank) connect_to_peer(peer);
    }
    accept_higher_ranks();
    return std::move(sockets_);
  }

 private:
  // Each rank also sends a random word; rank 0's makes the key of this mesh.
  void tell_location(const Exchange& exchange) {
    const Location own = own_location(options_.own_address);
    const std::vector<std::string> texts = exchange(random_hex(kWordBytes) + to_text(own));
    WEFT_CHECK(static_cast<std::int64_t>(texts.size()) == options_.size);
    for (const std::string& text : texts) {
      const auto rank = static_cast<std::int64_t>(locations_.size());
      locations_.push_back(location_from(text.substr(std::min(text.size(), 2 * kWordBytes)), rank));
    }
    key_ = keyed_hash("weft mesh " + options_.secret, texts[0].substr(0, 2 * kWordBytes));
  }

  void tell_contact(const Exchange& exchange, const Address& listens) {
    const std::string place = listens.host == dotted(0) ? "" : listens.host;
    const Contact own{reachable_at(place, locations_[options_.rank]), listens.port};
    const std::vector<std::string> texts = exchange(to_text(own));
    WEFT_CHECK(static_cast<std::int64_t>(texts.size()) == options_.size);
    for (const std::string& text : texts) {
      contacts_.push_back(contact_from(text, static_cast<std::int64_t>(contacts_.size())));
    }
  }

  void connect_to_peer(std::int64_t peer) {
    const Location& own = locations_[options_.rank];
    const Location& other = locations_[peer];
    std::string obstacles;
    while (Clock::now() < deadline_) {
      obstacles.clear();
      for (const Address& address : candidates(own, other, contacts_[peer])) {
        Socket socket;
        const Outcome outcome = greet(address, peer, socket);
        if (outcome.ok()) {
          sockets_[peer] = std::move(socket);
          return;
        }
        obstacles += fmt::format("; {}: {}", address.text(), outcome.reason);
      }
      std::this_thread::sleep_for(kRetryPeriod);
    }
    throw RunFailed(fmt::format("rank {} could not connect to rank {}{}", options_.rank, peer, obstacles));
  }

  // A peer that is still connecting itself answers later, perhaps to the next attempt. Once it has proven itself it is
  // waited for.
  Outcome greet(const Address& address, std::int64_t peer, Socket& socket) {
    Outcome outcome = connect_to(address, std::min(deadline_, Clock::now() + kAttemptTime), socket);
    if (outcome.ok()) {
      const Claim claim{kPurpose, options_.rank, peer, options_.size};
      outcome = prove_to_host(socket, claim, key_, std::min(deadline_, Clock::now() + kHandshakeTime));
    }
    MessageReader reader;
    if (outcome.ok()) outcome = reader.read_until(socket, deadline_);
    if (outcome.ok() && reader.kind() != MessageKind::welcome) outcome.reason = "it does not want us";
    return outcome;
  }

  std::vector<std::int64_t> awaited() const {
    std::vector<std::int64_t> ranks;
    for (const std::int64_t peer : options_.neighbours) {
      if (peer > options_.rank && !sockets_[peer]) ranks.push_back(peer);
    }
    return ranks;
  }

  void accept_higher_ranks() {
    std::vector<pollfd> others;
    while (true) {
      const std::vector<std::int64_t> missing = awaited();
      if (missing.empty()) return;
      if (Clock::now() >= deadline_) {
        throw RunFailed(fmt::format("rank {} waited in vain for a connection of rank {}{}", options_.rank,
                                    fmt::join(missing, ", "), door_->remarks()));
      }
      for (Guest& guest : door_->wait(deadline_, others)) take(guest);
    }
  }

  // A rank that comes again had lost its first connection before our welcome reached it.
  void take(Guest& guest) {
    const std::int64_t peer = guest.claim.from;
    const bool is_awaited =
        peer > options_.rank && std::count(options_.neighbours.begin(), options_.neighbours.end(), peer) > 0;
    if (!is_awaited || !send_message(guest.socket, MessageKind::welcome, "", deadline_).ok()) return;
    sockets_[peer] = std::move(guest.socket);
  }

  const MeshOptions& options_;
  std::string key_;
  std::vector<Location> locations_;  // by rank
  std::vector<Contact> contacts_;    // by rank
  std::optional<Door> door_;
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
