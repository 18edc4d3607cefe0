#include "comm/local/paced_network.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "comm/idle.hpp"
#include "comm/paced_links.hpp"

namespace weft {
namespace {

// The network's own thread makes smaller copies, because waking another would take longer.
constexpr std::int64_t kMinOfferedBytes = 64 << 10;
constexpr Nanos kNever{std::numeric_limits<std::int64_t>::max() / 4};
constexpr std::chrono::hours kMaxSleep{1};

}  // namespace

// The transport of one rank. Every call holds the baton.
class PacedNetwork::RankTransport final : public Transport, private PacedLinks, private RankHealth {
 public:
  RankTransport(PacedNetwork& world, std::int64_t rank) : world_(world), rank_(rank) {}
  ~RankTransport() override { drive(nullptr); }

  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return std::ssize(world_.ranks_); }
  TransportFeatures features() override { return {.reduces_on_arrival = true, .paced_links = this, .health = this}; }

  Ticket send(std::int64_t peer, std::int64_t channel, std::span<const Segment> src) override {
    const Baton baton = world_.enter();
    const std::int64_t number = world_.new_post(rank_);
    world_.post(number).src = src;
    world_.post(number).bytes = total_bytes(src);
    Connection& connection = world_.connections_[{rank_, peer, channel}];
    connection.sent.push(number);
    world_.match(rank_, peer, connection);
    return {number};
  }

  Ticket receive(std::int64_t peer, std::int64_t channel, const Landing& landing) override {
    const Baton baton = world_.enter();
    const std::int64_t number = world_.new_post(rank_);
    world_.post(number).landing = landing;
    world_.post(number).bytes = total_bytes(landing.dst);
    Connection& connection = world_.connections_[{peer, rank_, channel}];
    connection.expected.push(number);
    world_.match(peer, rank_, connection);
    return {number};
  }

  bool done(Ticket ticket) override {
    const Baton baton = world_.enter();
    if (!world_.post(ticket.value).done) return false;
    world_.unused_posts_.push_back(ticket.value);
    --world_.state(rank_).posts;
    return true;
  }

  void pause(Clock::time_point until) override {
    if (world_.help()) return;
    Signal& signal = world_.state(rank_).signal;
    signal.wait(until, {});
    signal.take();
    world_.help();  // it may have been woken for a copy, which needs no baton
  }

  void wake() override { world_.state(rank_).signal.raise(); }

  // A message that both ends have posted always arrives.
  std::uint64_t moved() const override {
    return world_.state(rank_).under_way > 0 ? static_cast<std::uint64_t>(world_.now().value) : 0;
  }

 private:
  void drive(std::function<void()> round) override {
    const Baton baton(world_.baton_);
    const bool ends = round == nullptr;
    world_.state(rank_).round = std::move(round);
    // Other ranks hold addresses of what is under way.
    if (ends && std::exchange(world_.state(rank_).posts, 0) > 0)
      world_.give_up(rank_, "it left in the middle of a collective");
  }

  void request_round(Clock::time_point since) override {
    const std::int64_t time = std::chrono::nanoseconds(since - world_.origin_).count();
    std::atomic<std::int64_t>& called = world_.state(rank_).called;
    std::int64_t known = called.load();
    while ((known == kNotCalled || time < known) && !called.compare_exchange_weak(known, time)) {
    }
    world_.signal_.raise();
  }

  void exclusively(const std::function<void()>& work) override { world_.exclusively(work); }
  Clock::time_point now() const override { return world_.at(world_.clock_); }

  Ticket land(std::span<const Segment> src, const Landing& landing) override {
    const Baton baton = world_.enter();
    const std::int64_t number = world_.new_post(rank_);
    world_.post(number).src = src;
    world_.post(number).landing = landing;
    world_.post(number).bytes = total_bytes(src);
    world_.begin_work(number);
    return {number};
  }

  std::optional<LostRank> lost() const override { return world_.failure_.seen_by(rank_); }
  void give_up(const std::string& why) override { world_.give_up(rank_, why); }

  PacedNetwork& world_;
  std::int64_t rank_;
};

PacedNetwork::PacedNetwork(const Cluster& cluster, double slowdown, std::int64_t ranks)
    : slowdown_(slowdown), network_(cluster, slowdown) {
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    devices_.push_back(cluster.device(make_id<Rank>(static_cast<std::size_t>(rank))));
    ranks_.push_back(std::make_unique<RankState>());
  }
  thread_ = std::thread([this] { main(); });
}

PacedNetwork::~PacedNetwork() {
  {
    const Baton baton(baton_);
    stopping_ = true;
  }
  signal_.raise();
  thread_.join();
}

std::unique_ptr<Transport> PacedNetwork::transport(std::int64_t rank) {
  return std::make_unique<RankTransport>(*this, rank);
}

void PacedNetwork::main() {
  become_communication_thread();
  for (;;) {
    Clock::time_point until = Clock::now() + kMaxSleep;
    {
      const Baton baton(baton_);
      if (stopping_) return;
      catch_up(now());
      thread_sleeps_until_ = next_event().value_or(kNever);
      if (thread_sleeps_until_ < kNever) until = at(thread_sleeps_until_);
    }
    signal_.wait(until, {});
    signal_.take();
  }
}

PacedNetwork::Baton PacedNetwork::enter() {
  Baton baton(baton_);
  if (!running_) {
    const Nanos until = now();
    catch_up(until);
    clock_ = std::max(clock_, until);
    network_.advance(clock_);
    tell_thread();
  }
  return baton;
}

// While `work` runs, ranks are not run and the clock stands still.
void PacedNetwork::exclusively(const std::function<void()>& work) {
  const Baton baton(baton_);
  work();
}

std::int64_t PacedNetwork::new_post(std::int64_t rank) {
  if (unused_posts_.empty()) {
    unused_posts_.push_back(std::ssize(posts_));
    posts_.emplace_back();
  }
  const std::int64_t number = unused_posts_.back();
  unused_posts_.pop_back();
  post(number) = {.rank = rank, .src = {}, .landing = {}};
  ++state(rank).posts;
  return number;
}

// Starts messages that both ends have posted.
void PacedNetwork::match(std::int64_t sender, std::int64_t receiver, Connection& connection) {
  if (failure_.happened()) return;
  while (!connection.sent.empty() && !connection.expected.empty()) {
    const std::int64_t send = connection.sent.pop(), receive = connection.expected.pop();
    const std::int64_t bytes = post(send).bytes;
    if (bytes != post(receive).bytes) {
      throw RunFailed(fmt::format("rank {} expects {} bytes of rank {}, which sends {}", receiver, post(receive).bytes,
                                  sender, bytes));
    }
    if (connection.network_id < 0) {
      connection.network_id = network_.open_connection(make_id<Rank>(static_cast<std::size_t>(sender)),
                                                       make_id<Rank>(static_cast<std::size_t>(receiver)));
    }
    const auto flow = static_cast<std::size_t>(network_.start(connection.network_id, Bytes{bytes}, clock_));
    while (moving_.size() <= flow) moving_.emplace_back();
    Moving& moving = moving_[flow];
    moving.send = send;
    moving.receive = receive;
    for (const std::int64_t end : {sender, receiver}) ++state(end).under_way;
    moving.job = {.work = LandingWork(post(send).src, post(receive).landing)};
    if (bytes >= kMinOfferedBytes) {
      jobs_.offer(moving.job);
      state(receiver).signal.raise();
    }
  }
  tell_thread();
}

void PacedNetwork::begin_work(std::int64_t number) {
  if (failure_.happened()) return;
  if (unused_works_.empty()) {
    unused_works_.push_back(std::ssize(works_));
    works_.emplace_back();
  }
  const std::int64_t slot = unused_works_.back();
  unused_works_.pop_back();
  Work& work = works_[slot];
  const Post& posted = post(number);
  RankState& rank = state(posted.rank);
  rank.worked_until = std::max(clock_, rank.worked_until) + time_of_work(posted);
  work.post = number;
  work.end = rank.worked_until;
  work.job = {.work = LandingWork(posted.src, posted.landing)};
  works_under_way_.push_back(slot);
  if (posted.bytes >= kMinOfferedBytes) {
    jobs_.offer(work.job);
    rank.signal.raise();
  }
  tell_thread();
}

Nanos PacedNetwork::time_of_work(const Post& post) const {
  const Device& device = devices_[post.rank];
  const MemoryWork kind = post.landing.operand.empty() ? MemoryWork::copy : MemoryWork::reduce;
  return memory_time(device, kind, Bytes{post.bytes}, slowdown_);
}

// Lets the communication thread of a rank make the copies that are offered. Returns whether it made any.
bool PacedNetwork::help() {
  bool helped = false;
  while (jobs_.help()) helped = true;
  if (helped) signal_.raise();
  return helped;
}

std::int64_t PacedNetwork::first_called() const {
  std::int64_t first = -1, since = std::numeric_limits<std::int64_t>::max();
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    const std::int64_t called = ranks_[rank]->called.load();
    if (called == kNotCalled || called >= since) continue;
    since = called;
    first = static_cast<std::int64_t>(rank);
  }
  return first;
}

std::optional<Nanos> PacedNetwork::next_event() const {
  std::optional<Nanos> next = network_.next_event();
  for (const std::int64_t slot : works_under_way_) {
    const Nanos end = works_[slot].end;
    if (!next || end < *next) next = end;
  }
  return next;
}

// Processes everything that was due by then, in the order of the network's time.
void PacedNetwork::catch_up(Nanos until) {
  if (running_) return;
  running_ = true;
  for (;;) {
    const std::int64_t rank = first_called();
    if (failure_.happened()) {  // nothing moves any more; ranks that look around find out
      if (rank < 0) break;
      state(rank).called = kNotCalled;
      clock_ = std::max(clock_, now());
      touch(rank);
      run_touched();
      continue;
    }
    const std::optional<Nanos> next = next_event();
    const Nanos call = rank < 0 ? kNever : Nanos{state(rank).called.load()};
    // A call may have come since `until`; all events before it are then due too.
    const Nanos due = rank < 0 ? until : std::max(until, call);
    const Nanos event = std::min(call, next && *next <= due ? *next : kNever);
    if (event == kNever) break;
    if (rank >= 0 && (!next || call < *next)) {
      state(rank).called = kNotCalled;
      clock_ = std::max(clock_, call);
      network_.advance(clock_);
      touch(rank);
    } else {
      clock_ = std::max(clock_, event);
      end_works();
      end_messages();
    }
    run_touched();
  }
  running_ = false;
}

void PacedNetwork::end_works() {
  std::erase_if(works_under_way_, [&](std::int64_t slot) {
    Work& work = works_[slot];
    if (work.end > clock_) return false;
    jobs_.finish(work.job);
    post(work.post).done = true;
    touch(post(work.post).rank);
    unused_works_.push_back(slot);
    return true;
  });
}

void PacedNetwork::end_messages() {
  network_.advance(clock_);
  for (const std::int32_t flow : network_.arrived()) {
    Moving& moving = moving_[flow];
    jobs_.finish(moving.job);
    network_.ended(flow, clock_);
    for (const std::int64_t number : {moving.send, moving.receive}) {
      post(number).done = true;
      touch(post(number).rank);
      --state(post(number).rank).under_way;
    }
  }
  network_.clear_arrived();
}

void PacedNetwork::touch(std::int64_t rank) {
  if (!std::exchange(state(rank).touched, true)) touched_.push_back(rank);
}

void PacedNetwork::run_touched() {
  for (std::size_t i = 0; i < touched_.size(); ++i) {
    RankState& rank = state(touched_[i]);
    rank.touched = false;
    if (rank.round) {
      rank.round();
    } else {
      rank.signal.raise();
    }
  }
  touched_.clear();
}

// Wakes the network's thread if an event comes before the time until which it sleeps.
void PacedNetwork::tell_thread() {
  if (running_) return;
  const std::optional<Nanos> next = next_event();
  if (next && *next < thread_sleeps_until_) signal_.raise();
}

// Stops all transfers of this world. When it returns, nobody reads the rank's memory.
void PacedNetwork::give_up(std::int64_t rank, const std::string& why) {
  const Baton baton(baton_);
  failure_.note(rank, why);
  jobs_.clear();
  for (const auto& other : ranks_) other->signal.raise();
}

}  // namespace weft
