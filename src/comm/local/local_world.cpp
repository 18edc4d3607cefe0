#include "comm/local/local_world.hpp"

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "comm/landing.hpp"
#include "comm/local/fifo.hpp"
#include "comm/local/paced_network.hpp"
#include "comm/local/shared_failure.hpp"
#include "comm/local/signal.hpp"

namespace weft {
namespace {

using Clock = Transport::Clock;

// How long an idle rank spins before it sleeps: about as long as waking up would take.
constexpr std::chrono::microseconds kSpinTime{100};

// A send that was posted, seen by both ends.
struct Message {
  std::span<const Segment> src;
  std::int64_t bytes = 0;
  std::int64_t sender = 0;
  std::atomic<bool> done{false};
};

struct Receive {
  Landing landing;
  std::int64_t bytes = 0;
  bool done = false;
};

}  // namespace

struct LocalWorld::Shared {
  // What arrives at a rank. Senders push under the lock; the rank itself matches.
  struct Connection {
    Fifo<Message*> sent;      // under Inbox::mutex
    Fifo<Receive*> expected;  // the rank's own thread only
  };
  struct Inbox {
    std::mutex mutex;
    std::map<std::pair<std::int64_t, std::int64_t>, Connection> connections;  // (peer, channel)
    Signal signal;
    std::mutex landing;  // held by the rank while it reads what others sent
  };

  explicit Shared(const LocalOptions& options) : inboxes(static_cast<std::size_t>(options.ranks)) {
    if (options.cluster != nullptr) paced.emplace(*options.cluster, options.slowdown, options.ranks);
  }

  std::vector<Inbox> inboxes;
  SharedFailure failure;
  std::optional<PacedNetwork> paced;  // instead of all of the above
};

namespace {

class LocalTransport final : public Transport, private RankHealth {
 public:
  LocalTransport(LocalWorld::Shared& world, std::int64_t rank)
      : world_(world), rank_(rank), inbox_(world.inboxes[rank]) {}

  ~LocalTransport() override {
    // Other ranks point to what is under way, so leaving now fails the world.
    if (messages_.size() != unused_messages_.size() || receives_.size() != unused_receives_.size())
      give_up("it left in the middle of a collective");
  }

  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return std::ssize(world_.inboxes); }
  TransportFeatures features() override { return {.reduces_on_arrival = true, .health = this}; }

  Ticket send(std::int64_t peer, std::int64_t channel, std::span<const Segment> src) override {
    const std::int64_t slot = take(unused_messages_, messages_);
    Message& message = messages_[slot];
    message.src = src;
    message.bytes = total_bytes(src);
    message.sender = rank_;
    message.done.store(false, std::memory_order_relaxed);
    auto& inbox = world_.inboxes[peer];
    {
      const std::lock_guard lock(inbox.mutex);
      inbox.connections[{rank_, channel}].sent.push(&message);
    }
    inbox.signal.raise();
    return {2 * slot};
  }

  Ticket receive(std::int64_t peer, std::int64_t channel, const Landing& landing) override {
    const std::int64_t slot = take(unused_receives_, receives_);
    Receive& receive = receives_[slot];
    receive = {landing, total_bytes(landing.dst), false};
    const std::lock_guard lock(inbox_.mutex);
    inbox_.connections[{peer, channel}].expected.push(&receive);
    matchable_ = true;
    return {2 * slot + 1};
  }

  bool done(Ticket ticket) override {
    progress();
    const auto slot = static_cast<std::size_t>(ticket.value / 2);
    if (ticket.value % 2 == 0) {
      Message& message = messages_[slot];
      if (!message.done.load(std::memory_order_acquire)) return false;
      unused_messages_.push_back(ticket.value / 2);
      return true;
    }
    if (!receives_[slot].done) return false;
    unused_receives_.push_back(ticket.value / 2);
    return true;
  }

  void pause(Clock::time_point until) override {
    inbox_.signal.wait(until, kSpinTime);
    // The signal is cleared here too: a rank with nothing under way polls nothing and would otherwise never sleep
    // again.
    if (inbox_.signal.take()) signalled_ = true;
  }

  void wake() override { inbox_.signal.raise(); }
  std::uint64_t moved() const override { return 0; }  // a message moves all at once

 private:
  std::optional<LostRank> lost() const override { return world_.failure.seen_by(rank_); }

  // Stops all transfers of this world. When it returns, nobody reads this rank's memory.
  void give_up(const std::string& why) override {
    world_.failure.note(rank_, why);
    for (auto& inbox : world_.inboxes) {
      {
        const std::lock_guard wait_for_it(inbox.landing);
      }
      inbox.signal.raise();
    }
  }

  struct Match {
    Message* message;
    Receive* receive;
  };

  template <class Pool>
  static std::int64_t take(std::vector<std::int64_t>& unused, Pool& pool) {
    if (unused.empty()) {
      unused.push_back(std::ssize(pool));
      pool.emplace_back();
    }
    const std::int64_t slot = unused.back();
    unused.pop_back();
    return slot;
  }

  void progress() {
    const bool signalled = inbox_.signal.take() | std::exchange(signalled_, false);
    if (!signalled && !matchable_) return;
    const std::lock_guard lock(inbox_.landing);
    if (world_.failure.happened()) return;
    match();
    deliver();
  }

  void match() {
    matches_.clear();
    const std::lock_guard lock(inbox_.mutex);
    for (auto& [key, connection] : inbox_.connections) {
      while (!connection.sent.empty() && !connection.expected.empty()) {
        matches_.push_back({connection.sent.pop(), connection.expected.pop()});
      }
    }
    matchable_ = false;
  }

  void check(const Match& match) const {
    if (match.message->bytes == match.receive->bytes) return;
    throw RunFailed(fmt::format("rank {} expects {} bytes of rank {}, which sends {}", rank_, match.receive->bytes,
                                match.message->sender, match.message->bytes));
  }

  // Moves the bytes.
  void deliver() {
    for (const Match& pair : matches_) {
      check(pair);
      land(pair.message->src, pair.receive->landing);
      finish(pair.message, pair.receive);
    }
  }

  void finish(Message* message, Receive* receive) {
    receive->done = true;
    auto& sender = world_.inboxes[message->sender];
    message->done.store(true, std::memory_order_release);  // the sender may reuse it from here on
    sender.signal.raise();
  }

  LocalWorld::Shared& world_;
  std::int64_t rank_;
  LocalWorld::Shared::Inbox& inbox_;
  std::deque<Message> messages_;  // never move: others point to them
  std::deque<Receive> receives_;
  std::vector<std::int64_t> unused_messages_, unused_receives_;
  std::vector<Match> matches_;
  bool signalled_ = false;  // and the signal has not been handled yet
  bool matchable_ = false;  // a receive was posted since the last match
};

}  // namespace

LocalWorld::LocalWorld(const LocalOptions& options) {
  if (options.ranks < 1) fail("local ranks: {} is not 1 or more", options.ranks);
  if (options.cluster != nullptr && options.cluster->device_count() < options.ranks) {
    fail("local ranks: {} ranks on the {} devices of cluster {}", options.ranks, options.cluster->device_count(),
         options.cluster->spec().name);
  }
  shared_ = std::make_unique<Shared>(options);
}

LocalWorld::~LocalWorld() = default;

std::unique_ptr<Transport> LocalWorld::transport(std::int64_t rank) {
  WEFT_CHECK(rank >= 0 && rank < std::ssize(shared_->inboxes));
  if (shared_->paced) return shared_->paced->transport(rank);
  return std::make_unique<LocalTransport>(*shared_, rank);
}

}  // namespace weft
