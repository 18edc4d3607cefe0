#include "comm/tcp/tcp_transport.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "comm/liveness.hpp"
#include "comm/tcp/link.hpp"
#include "comm/tcp/mesh.hpp"
#include "comm/tcp/rendezvous.hpp"

namespace weft {

namespace {

using tcp::Link;
using tcp::Transfer;

// A closed connection shows who is gone but not why. Liveness has this long to name the origin.
constexpr std::chrono::milliseconds kTimeForVerdict{1000};
// Callers that ask lost() can say better what they waited for; done() throws this much later, for those that do not
// ask.
constexpr std::chrono::milliseconds kTimeToAskLost{1000};
constexpr std::chrono::milliseconds kVerdictPeriod{20};
constexpr std::chrono::seconds kFinishTime{2};
// For every rank two links, its rendezvous connection while ranks meet, one connection for signs of life, and a place
// among the door's visitors (comm/tcp/door.hpp), where strangers may be too.
constexpr std::int64_t kFilesPerRank = 5, kOtherFiles = 512;
// Every peer has one link for small messages, which may leave in bursts, and one for large messages, which are paced:
// streams of several ranks share a network best when none runs ahead (docs/tcp.md).
constexpr std::size_t kLinksPerPeer = 2;
// After so long without events, announcements that wait to travel along with data are sent alone, since a peer may need
// them.
constexpr int kQuietMilliseconds = 20;
constexpr std::uint64_t kWakeEvent = ~std::uint64_t{0};

class TcpTransport final : public Transport, private RankHealth {
 public:
  explicit TcpTransport(const TcpOptions& options);
  ~TcpTransport() override;

  std::int64_t rank() const override { return rank_; }
  std::int64_t size() const override { return static_cast<std::int64_t>(links_.size() / kLinksPerPeer); }

  Ticket send(std::int64_t peer, std::int64_t channel, std::span<const Segment> src) override;
  Ticket receive(std::int64_t peer, std::int64_t channel, const Landing& landing) override;
  bool done(Ticket ticket) override;
  void pause(Clock::time_point until) override;
  void wake() override;
  std::uint64_t moved() const override;
  TransportFeatures features() override { return {.reduces_on_arrival = true, .health = this}; }

 private:
  std::optional<LostRank> lost() const override;
  void give_up(const std::string& why) override;
  std::chrono::nanoseconds silence(std::int64_t peer) const override { return liveness_->silence(peer); }
  void declare_lost(const LostRank& silent) override { liveness_->declare_lost(silent); }

  Link& link_to(std::int64_t peer, std::int64_t bytes);
  std::pair<Ticket, Transfer*> new_transfer(std::int64_t peer, std::int64_t channel, std::int64_t bytes, bool receives);
  void connect(const tcp::MeshOptions& options, const Exchange& exchange, tcp::LinkKind kind);
  void watch(const Link& link, std::size_t number);
  void progress(int timeout_milliseconds);
  void serve_links();
  void notice_closed_links();
  std::string why_closed(std::size_t peer) const;
  std::optional<LostRank> why_hopeless(const Transfer& transfer) const;
  void throw_if_hopeless(const Transfer& transfer);

  std::int64_t rank_ = 0;
  tcp::Socket wake_;  // an eventfd; outlives liveness, whose thread wakes us
  tcp::Socket epoll_;
  std::unique_ptr<tcp::Scratch> scratch_ = std::make_unique<tcp::Scratch>();
  std::vector<std::unique_ptr<Link>> links_;  // by rank, then small and large messages; none to this rank itself
  std::vector<std::optional<Clock::time_point>> closed_since_;  // by rank
  std::unique_ptr<Liveness> liveness_;

  // By rank: the number of the next message of a channel and direction.
  std::vector<std::unordered_map<std::int64_t, std::uint32_t>> numbers_;
  std::deque<Transfer> transfers_;  // by ticket
  std::vector<std::int64_t> free_;  // tickets
  std::uint64_t pass_ = 0;
  std::atomic<bool> gave_up_ = false;
  std::optional<Clock::time_point> hopeless_since_;
  mutable std::mutex gone_mutex_;
  std::optional<LostRank> gone_;  // the rank that we wait for in vain, if liveness has not named it
  bool changed_ = false;          // something was finished that the caller may not know yet
};

TcpTransport::TcpTransport(const TcpOptions& options)
    : rank_(options.rank),
      wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      links_(kLinksPerPeer * static_cast<std::size_t>(std::max<std::int64_t>(options.size, 0))),
      closed_since_(links_.size() / kLinksPerPeer),
      numbers_(links_.size() / kLinksPerPeer) {
  tcp::allow_open_files(kFilesPerRank * options.size + kOtherFiles);
  tcp::Rendezvous rendezvous(
      {options.rank, options.size, options.root, options.secret, options.root_listener, options.timeout});
  const Exchange exchange = [&](const std::string& mine) { return rendezvous.exchange(mine); };
  if (options.on_meeting) options.on_meeting(exchange);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.u64 = kWakeEvent;
  ::epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, wake_.fd(), &event);
  for (const tcp::LinkKind kind : {tcp::LinkKind::small_messages, tcp::LinkKind::large_messages}) {
    connect({options.rank, options.size, tcp::all_others(options.rank, options.size), rendezvous.own_address(),
             options.secret, options.timeout},
            exchange, kind);
  }
  LivenessOptions liveness;
  liveness.period = options.beat;
  liveness.connect_timeout = options.timeout;
  liveness.own_address = rendezvous.own_address();
  liveness.secret = options.secret;
  liveness.on_loss = [this](const LostRank&) { wake(); };
  liveness_ = std::make_unique<Liveness>(options.rank, options.size, exchange, std::move(liveness));
}

void TcpTransport::connect(const tcp::MeshOptions& options, const Exchange& exchange, tcp::LinkKind kind) {
  std::vector<tcp::Socket> sockets = tcp::connect_mesh(options, exchange);
  for (std::size_t peer = 0; peer < sockets.size(); ++peer) {
    if (!sockets[peer]) continue;
    const std::size_t at = kLinksPerPeer * peer + static_cast<std::size_t>(kind);
    links_[at] = std::make_unique<Link>(rank_, static_cast<std::int64_t>(peer), std::move(sockets[peer]), *scratch_,
                                        kind, options.size == 2);
    watch(*links_[at], at);
  }
}

TcpTransport::~TcpTransport() {
  const Clock::time_point deadline = Clock::now() + kFinishTime;
  for (const std::unique_ptr<Link>& link : links_) {
    if (link) link->finish(deadline);
  }
}

void TcpTransport::watch(const Link& link, std::size_t number) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = number;
  WEFT_CHECK(::epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, link.fd(), &event) == 0);
}

// Both ends know the size, so they agree.
Link& TcpTransport::link_to(std::int64_t peer, std::int64_t bytes) {
  WEFT_CHECK(peer >= 0 && peer < size() && peer != rank_);
  return *links_[kLinksPerPeer * static_cast<std::size_t>(peer) + static_cast<std::size_t>(tcp::link_kind(bytes))];
}

std::pair<Ticket, Transfer*> TcpTransport::new_transfer(std::int64_t peer, std::int64_t channel, std::int64_t bytes,
                                                        bool receives) {
  WEFT_CHECK(channel >= 0 && channel < tcp::kMaxChannels);
  if (free_.empty()) {
    free_.push_back(static_cast<std::int64_t>(transfers_.size()));
    transfers_.emplace_back();
  }
  const Ticket ticket{free_.back()};
  free_.pop_back();
  Transfer& transfer = transfers_[ticket.value];
  transfer = {};
  transfer.peer = peer;
  transfer.channel = channel;
  transfer.receives = receives;
  transfer.number = numbers_[peer][2 * channel + (receives ? 1 : 0)]++;
  transfer.total = bytes;
  transfer.asked = pass_;
  return {ticket, &transfer};
}

Ticket TcpTransport::send(std::int64_t peer, std::int64_t channel, std::span<const Segment> src) {
  const auto [ticket, transfer] = new_transfer(peer, channel, total_bytes(src), false);
  transfer->src = SegmentCursor(src);
  link_to(peer, transfer->total).send(*transfer);
  if (!transfer->finished) return ticket;
  free_.push_back(ticket.value);
  return {};
}

Ticket TcpTransport::receive(std::int64_t peer, std::int64_t channel, const Landing& landing) {
  const auto [ticket, transfer] = new_transfer(peer, channel, total_bytes(landing.dst), true);
  transfer->dst = tcp::LandingCursor(landing);
  link_to(peer, transfer->total).receive(*transfer);
  return ticket;
}

// Callers ask for all their tickets in turn, so one pass serves the whole round.
bool TcpTransport::done(Ticket ticket) {
  if (ticket.empty()) return true;
  Transfer& transfer = transfers_[ticket.value];
  if (!transfer.finished) {
    if (transfer.asked == pass_) progress(0);
    transfer.asked = pass_;
  }
  if (transfer.finished) {
    free_.push_back(ticket.value);
    return true;
  }
  throw_if_hopeless(transfer);
  return false;
}

void TcpTransport::serve_links() {
  if (gave_up_) return;
  for (const std::unique_ptr<Link>& link : links_) {
    if (!link || !link->open()) continue;
    link->read();
    link->write();
  }
  for (const std::unique_ptr<Link>& link : links_) {
    if (link && link->take_news()) changed_ = true;
  }
  notice_closed_links();
}

void TcpTransport::progress(int timeout_milliseconds) {
  ++pass_;
  serve_links();
  const bool more = !gave_up_ && std::any_of(links_.begin(), links_.end(),
                                             [](const auto& link) { return link && link->can_go_on(); });
  std::array<epoll_event, 64> events;
  if (more || changed_) timeout_milliseconds = 0;
  const bool some_wait = timeout_milliseconds > 0 && std::any_of(links_.begin(), links_.end(), [](const auto& link) {
                           return link && link->has_patience();
                         });
  const int longest = some_wait ? std::min(timeout_milliseconds, kQuietMilliseconds) : timeout_milliseconds;
  const int count = ::epoll_wait(epoll_.fd(), events.data(), static_cast<int>(events.size()), longest);
  if (count == 0 && some_wait) {
    for (const std::unique_ptr<Link>& link : links_) {
      if (link) link->hurry();
    }
  }
  if (count <= 0) return;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[i];
    if (event.data.u64 == kWakeEvent) continue;
    const bool readable = (event.events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0;
    links_[event.data.u64]->set_ready(readable, (event.events & EPOLLOUT) != 0);
  }
  serve_links();
}

void TcpTransport::pause(Clock::time_point until) {
  const Clock::time_point now = Clock::now();
  const bool verdict_is_near = std::any_of(closed_since_.begin(), closed_since_.end(), [&](const auto& closed) {
    return closed && now < *closed + kTimeForVerdict + kTimeToAskLost;
  });
  if (verdict_is_near || hopeless_since_) until = std::min(until, now + kVerdictPeriod);
  if (!changed_) progress(tcp::poll_milliseconds(until));
  changed_ = false;
}

std::uint64_t TcpTransport::moved() const {
  std::uint64_t bytes = 0;
  for (const std::unique_ptr<Link>& link : links_) bytes += link ? link->moved() : 0;
  return bytes;
}

void TcpTransport::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.fd(), &one, sizeof one);
}

void TcpTransport::notice_closed_links() {
  for (std::size_t i = 0; i < links_.size(); ++i) {
    if (!links_[i] || links_[i]->open() || closed_since_[i / kLinksPerPeer]) continue;
    closed_since_[i / kLinksPerPeer] = Clock::now();
    if (links_[i]->broken_by_mismatch()) liveness_->give_up(links_[i]->closed());
  }
}

void TcpTransport::give_up(const std::string& why) {
  gave_up_ = true;
  liveness_->give_up(why);
}

std::optional<LostRank> TcpTransport::lost() const {
  if (std::optional<LostRank> loss = liveness_->lost()) return loss;
  const std::lock_guard lock(gone_mutex_);
  return gone_;
}

std::string TcpTransport::why_closed(std::size_t peer) const {
  const Link& small = *links_[kLinksPerPeer * peer];
  return small.open() ? links_[kLinksPerPeer * peer + 1]->closed() : small.closed();
}

// Finds which rank is the reason that a transfer will never finish.
std::optional<LostRank> TcpTransport::why_hopeless(const Transfer& transfer) const {
  const auto peer = static_cast<std::size_t>(transfer.peer);
  const std::optional<Clock::time_point> closed = closed_since_[peer];
  const std::optional<LostRank> loss = liveness_->lost();
  if (loss && (closed || loss->rank == transfer.peer)) return loss;
  if (!closed) return std::nullopt;
  // A leaving rank closes its connections one by one; what it sent on those still open will arrive.
  const bool may_come = links_[kLinksPerPeer * peer + static_cast<std::size_t>(tcp::link_kind(transfer.total))]->open();
  if (!may_come && liveness_->left(transfer.peer)) return LostRank{transfer.peer, "it has left"};
  const Clock::duration patience = may_come ? kFinishTime + kTimeForVerdict : kTimeForVerdict;
  if (Clock::now() >= *closed + patience) return LostRank{transfer.peer, why_closed(peer)};
  return std::nullopt;
}

void TcpTransport::throw_if_hopeless(const Transfer& transfer) {
  const std::size_t first = kLinksPerPeer * static_cast<std::size_t>(transfer.peer);
  const auto kind = static_cast<std::size_t>(tcp::link_kind(transfer.total));
  if (transfer.moved == 0) links_[first + 1 - kind]->look_for_counterpart(transfer);
  for (const std::size_t at : {first, first + 1}) {
    if (!links_[at]->broken_by_mismatch()) continue;
    notice_closed_links();
    throw RunFailed(links_[at]->closed());
  }
  const std::optional<LostRank> loss = why_hopeless(transfer);
  if (!loss) return;
  {
    const std::lock_guard lock(gone_mutex_);
    if (!gone_) gone_ = loss;
  }
  if (!hopeless_since_) hopeless_since_ = Clock::now();
  if (Clock::now() >= *hopeless_since_ + kTimeToAskLost) {
    throw RunFailed(fmt::format("rank {} is lost: {}", loss->rank, loss->reason));
  }
}

}  // namespace

std::unique_ptr<Transport> make_tcp_transport(const TcpOptions& options) {
  return std::make_unique<TcpTransport>(options);
}

}  // namespace weft
