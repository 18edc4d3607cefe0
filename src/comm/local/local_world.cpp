#include "comm/local/local_world.hpp"

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "comm/landing.hpp"
#include "comm/local/signal.hpp"

namespace weft {
namespace {

using Clock = Transport::Clock;

// How long an idle rank looks around before it sleeps, unpaced: about what waking up would cost.
constexpr std::chrono::microseconds kSpin{100};
constexpr Nanos kLookAgain{5'000};
// Copied between two looks around: about 20 us.
constexpr std::int64_t kCopyAtOnce = 128 << 10;
// Ranks react late to an emulated arrival: threads wake up late and share cores. What is within this is taken off the
// latency of the next message (never more than the latency itself), so that it does not count as network time.
constexpr Nanos kForgiven{1'000'000};

// A send that was posted, seen by both ends.
struct Message {
  std::span<const Segment> src;
  std::int64_t bytes = 0;
  std::int64_t sender = 0;
  Nanos posted;  // paced: when it would have been, had the sender reacted at once
  Nanos ended;   // valid once done
  std::atomic<bool> done{false};
};

struct Receive {
  Landing landing;
  std::int64_t bytes = 0;
  Nanos posted, ended;
  bool done = false;
};

// First in, first out, without freeing memory.
template <class T>
class Fifo {
 public:
  bool empty() const { return head_ == items_.size(); }
  void push(T item) { items_.push_back(item); }
  T pop() {
    const T item = items_[head_++];
    if (empty()) {
      items_.clear();
      head_ = 0;
    }
    return item;
  }

 private:
  std::vector<T> items_;
  std::size_t head_ = 0;
};

}  // namespace

struct LocalWorld::Shared {
  // What arrives at a rank. Senders push under the lock; the rank itself matches.
  struct Connection {
    Fifo<Message*> sent;      // under Inbox::mutex
    Fifo<Receive*> expected;  // the rank's own thread only, like the rest
    std::int32_t lane = -1;   // of the network; opened when first used
  };
  struct Inbox {
    std::mutex mutex;
    std::map<std::pair<std::int64_t, std::int64_t>, Connection> connections;  // (peer, channel)
    Signal signal;
    std::mutex landing;  // held by the rank while it reads what others sent
  };

  explicit Shared(const LocalOptions& options) : inboxes(static_cast<std::size_t>(options.ranks)) {
    if (options.cluster != nullptr) network.emplace(*options.cluster, options.slowdown);
  }

  Nanos now() const { return {std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - origin).count()}; }
  Clock::time_point at(Nanos time) const { return origin + std::chrono::nanoseconds(time.value); }

  std::vector<Inbox> inboxes;
  std::mutex failure_mutex;
  std::optional<LostRank> failure;  // the first
  std::atomic<bool> failed{false};
  Clock::time_point origin = Clock::now();
  std::mutex network_mutex;
  std::optional<FlowNetwork> network;
  std::vector<std::int64_t> receiver_of;  // by flow
};

namespace {

class LocalTransport : public Transport {
 public:
  LocalTransport(LocalWorld::Shared& world, std::int64_t rank)
      : world_(world), rank_(rank), inbox_(world.inboxes[static_cast<std::size_t>(rank)]) {}

  ~LocalTransport() override {
    // Others have pointers to what is under way.
    if (messages_.size() != unused_messages_.size() || receives_.size() != unused_receives_.size())
      give_up("it left in the middle of a collective");
  }

  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return std::ssize(world_.inboxes); }
  bool reduces_on_arrival() const override { return true; }

  Ticket send(std::int64_t peer, std::int64_t channel, std::span<const Segment> src) override {
    const std::int64_t slot = take(unused_messages_, messages_);
    Message& message = messages_[static_cast<std::size_t>(slot)];
    message.src = src;
    message.bytes = total_bytes(src);
    message.sender = rank_;
    message.posted = posting_time();
    message.done.store(false, std::memory_order_relaxed);
    auto& inbox = world_.inboxes[static_cast<std::size_t>(peer)];
    {
      const std::lock_guard lock(inbox.mutex);
      inbox.connections[{rank_, channel}].sent.push(&message);
    }
    inbox.signal.raise();
    return {2 * slot};
  }

  Ticket receive(std::int64_t peer, std::int64_t channel, const Landing& landing) override {
    const std::int64_t slot = take(unused_receives_, receives_);
    Receive& receive = receives_[static_cast<std::size_t>(slot)];
    receive = {landing, total_bytes(landing.dst), posting_time(), {}, false};
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
      reacted_to_ = std::max(reacted_to_, message.ended);
      unused_messages_.push_back(ticket.value / 2);
      return true;
    }
    if (!receives_[slot].done) return false;
    reacted_to_ = std::max(reacted_to_, receives_[slot].ended);
    unused_receives_.push_back(ticket.value / 2);
    return true;
  }

  void pause(Clock::time_point until) override {
    if (copy_some()) return;
    if (world_.network && next_arrival_) until = std::min(until, world_.at(*next_arrival_));
    // Paced, it sleeps: spinning ranks take the cores from each other, and what a late wake-up costs is forgiven.
    inbox_.signal.wait(until, world_.network ? std::chrono::nanoseconds{} : kSpin);
    // Taken here too: a rank with nothing under way asks for nothing, and would never sleep again.
    if (inbox_.signal.take()) signalled_ = true;
  }

  void wake() override { inbox_.signal.raise(); }

  std::optional<LostRank> lost() override {
    if (!world_.failed) return std::nullopt;
    const std::lock_guard lock(world_.failure_mutex);
    return world_.failure->rank == rank_ ? std::nullopt : world_.failure;
  }

  // Nothing moves in this world any more: when it returns, nobody reads this rank's memory.
  void give_up(const std::string& why) override {
    {
      const std::lock_guard lock(world_.failure_mutex);
      if (!world_.failure) world_.failure = LostRank{rank_, "it gave up: " + why};
      world_.failed = true;
    }
    for (auto& inbox : world_.inboxes) {
      {
        const std::lock_guard wait_for_it(inbox.landing);
      }
      inbox.signal.raise();
    }
  }

 private:
  struct UnderWay {
    Message* message;
    Receive* receive;
    std::int32_t flow;
    LandingWork landing;  // while it travels
  };
  struct Match {
    Message* message;
    Receive* receive;
    std::int32_t* lane;
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

  Nanos posting_time() const {
    if (!world_.network) return {};
    const Nanos now = world_.now();
    return now - reacted_to_ <= kForgiven ? reacted_to_ : now;
  }

  void progress() {
    const bool signalled = inbox_.signal.take() | std::exchange(signalled_, false);
    const auto arriving = [&] {
      return !under_way_.empty() && (signalled || (next_arrival_ && world_.now() >= *next_arrival_));
    };
    if (!signalled && !matchable_ && !arriving()) return;
    const std::lock_guard lock(inbox_.landing);
    if (world_.failed) return;
    if (signalled || matchable_) {
      match();
      world_.network ? set_out() : deliver();
    }
    if (arriving()) arrive();
  }

  void match() {
    matches_.clear();
    const std::lock_guard lock(inbox_.mutex);
    for (auto& [key, connection] : inbox_.connections) {
      while (!connection.sent.empty() && !connection.expected.empty()) {
        matches_.push_back({connection.sent.pop(), connection.expected.pop(), &connection.lane});
      }
    }
    matchable_ = false;
  }

  void check(const Match& match) const {
    if (match.message->bytes == match.receive->bytes) return;
    throw RunFailed(fmt::format("rank {} expects {} bytes of rank {}, which sends {}", rank_, match.receive->bytes,
                                match.message->sender, match.message->bytes));
  }

  // Memory speed: the bytes move now.
  void deliver() {
    for (const Match& pair : matches_) {
      check(pair);
      land(pair.message->src, pair.receive->landing);
      finish(pair.message, pair.receive, {});
    }
  }

  // Paced: messages set out at once and are copied bit by bit meanwhile.
  void set_out() {
    if (matches_.empty()) return;
    {
      const std::lock_guard lock(world_.network_mutex);
      const Nanos now = world_.now();
      for (const Match& pair : matches_) {
        check(pair);
        const Nanos began = std::min(now, std::max(pair.message->posted, pair.receive->posted));
        if (*pair.lane < 0) {
          *pair.lane = world_.network->open_lane(make_id<Rank>(static_cast<std::size_t>(pair.message->sender)),
                                                 make_id<Rank>(static_cast<std::size_t>(rank_)));
        }
        const std::int32_t flow = world_.network->start(*pair.lane, Bytes{pair.message->bytes}, now, now - began);
        const auto index = static_cast<std::size_t>(flow);
        if (world_.receiver_of.size() <= index) world_.receiver_of.resize(index + 1);
        world_.receiver_of[index] = rank_;
        under_way_.push_back({pair.message, pair.receive, flow, LandingWork(pair.message->src, pair.receive->landing)});
      }
      after_network_change();
    }
  }

  // A bit of the first message that is not copied yet: in between, others may have to set out. False where all are.
  bool copy_some() {
    const std::lock_guard lock(inbox_.landing);
    if (world_.failed) return false;
    for (UnderWay& moving : under_way_) {
      if (moving.landing.done()) continue;
      moving.landing.advance(kCopyAtOnce);
      return true;
    }
    return false;
  }

  void arrive() {
    const std::lock_guard lock(world_.network_mutex);
    const Nanos now = world_.now();
    std::erase_if(under_way_, [&](const UnderWay& moving) {
      if (!moving.landing.done()) return false;  // a link faster than memory
      const std::optional<Nanos> end = world_.network->ended(moving.flow, now);
      if (end) finish(moving.message, moving.receive, *end);
      return end.has_value();
    });
    after_network_change();
  }

  // With the network's lock: when to look again, and who must look sooner than planned.
  void after_network_change() {
    for (const std::int32_t flow : world_.network->sooner()) {
      const std::int64_t receiver = world_.receiver_of[static_cast<std::size_t>(flow)];
      if (receiver != rank_) world_.inboxes[static_cast<std::size_t>(receiver)].signal.raise();
    }
    world_.network->clear_sooner();
    world_.network->clear_arrived();
    next_arrival_.reset();
    for (const UnderWay& moving : under_way_) {
      const Nanos end = world_.network->expected_end(moving.flow);
      if (!next_arrival_ || end < *next_arrival_) next_arrival_ = end;
    }
    // Expectations are hopeful where links are shared; asked again at once, they would keep the rank busy.
    if (next_arrival_) next_arrival_ = std::max(*next_arrival_, world_.now() + kLookAgain);
  }

  void finish(Message* message, Receive* receive, Nanos end) {
    receive->ended = end;
    receive->done = true;
    auto& sender = world_.inboxes[static_cast<std::size_t>(message->sender)];
    message->ended = end;
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
  std::vector<UnderWay> under_way_;
  std::optional<Nanos> next_arrival_;
  Nanos reacted_to_;        // the last emulated arrival or departure that the caller was told of
  bool signalled_ = false;  // and not yet acted upon
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
  return std::make_unique<LocalTransport>(*shared_, rank);
}

}  // namespace weft
