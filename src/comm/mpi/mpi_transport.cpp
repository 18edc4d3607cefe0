#include "comm/mpi/mpi_transport.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "comm/mpi/mpi_arrivals.hpp"
#include "comm/mpi/mpi_calls.hpp"
#include "comm/segment_cursor.hpp"

namespace weft {
namespace {

constexpr std::int64_t kMaxChannel = (std::int64_t{1} << 20) - 1;

// Returns the length of the piece that begins at `begin`. It depends only on the length of the message, because the
// other end may have other segments.
std::int64_t piece_length(std::int64_t begin, std::int64_t bytes, const MpiOptions& options) {
  const std::int64_t streamed = std::min(bytes, options.streamed);
  if (begin < streamed) return std::min(options.short_piece, streamed - begin);
  const std::int64_t even = (bytes - streamed + 63) / 64;
  return std::min(std::clamp(even, options.shortest_long_piece, options.longest_piece), bytes - begin);
}

void validate(const MpiOptions& options) {
  constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();
  if (options.short_piece < 1 || options.short_piece > kMaxInt || options.streamed < 0 ||
      options.shortest_long_piece < 1 || options.longest_piece < options.shortest_long_piece ||
      options.longest_piece > kMaxInt) {
    fail("MPI: messages are cut into pieces of {} bytes, then of {} to {}; 1 to {} in rising order are allowed",
         options.short_piece, options.shortest_long_piece, options.longest_piece, kMaxInt);
  }
}

// One ticket. The wire carries the concatenated segments in pieces. A piece that spans several segments passes through
// `staging`, which is kept for the next ticket; the others are sent and received in place.
struct Message {
  std::int64_t open_requests = 0;  // pieces that are not over: under way, or awaited
  std::string failure;             // why it can never arrive; empty where nothing is wrong
  std::uint64_t asked_in_round = 0;
  bool in_use = false;
  std::span<const Segment> scatter;  // a receive's segments, where some are to be filled from staging; else empty
  std::int64_t bytes = 0;
  std::vector<std::byte> staging;
};

// Calls on_piece(cursor, count, staged): `staged` is where in staging a piece has its place; -1: it needs none.
// Returns the bytes of staging that are needed.
template <class OnPiece>
std::int64_t for_each_piece(std::span<const Segment> segments, std::int64_t bytes, const MpiOptions& options,
                            const OnPiece& on_piece) {
  SegmentCursor cursor(segments);
  std::int64_t staged = 0;
  for (std::int64_t begin = 0; begin < bytes;) {
    const std::int64_t count = piece_length(begin, bytes, options);
    const bool whole = cursor.contiguous() >= count;
    on_piece(cursor, count, whole ? -1 : staged);
    if (!whole) staged += count;
    cursor.advance(count);
    begin += count;
  }
  return staged;
}

class MpiTransport final : public Transport, private NativeLibrary {
 public:
  MpiTransport(std::shared_ptr<MpiSession> session, const MpiOptions& options)
      : session_(std::move(session)), options_(options), idle_(options.idle) {
    if (options_.one_machine) options_.streamed = 0;
    validate(options_);
    messages_comm_ = duplicate(MPI_COMM_WORLD);
    groups_comm_ = duplicate(MPI_COMM_WORLD);
    check_highest_tag();
  }

  ~MpiTransport() override {
    if (!requests_.empty() || !arrivals_.idle()) session_->abandon();
    if (session_->state().abandoned) return;
    MPI_Comm_free(&messages_comm_);
    MPI_Comm_free(&groups_comm_);
  }

  std::int64_t rank() const override { return session_->rank(); }
  std::int64_t size() const override { return session_->size(); }

  Ticket send(std::int64_t peer, std::int64_t channel, std::span<const Segment> src) override {
    const Ticket ticket = take_ticket(peer, channel);
    Message& message = message_of(ticket);
    prepare_staging(message, src);
    start_requests(ticket, src,
                   [&](SegmentCursor cursor, std::int64_t count, std::int64_t staged, MPI_Request* request) {
                     std::byte* data = nullptr;
                     if (staged >= 0) {
                       data = message.staging.data() + staged;
                       cursor.copy_out(data, count);
                     } else if (count > 0) {
                       data = cursor.data();
                     }
                     check(MPI_Isend(data, static_cast<int>(count), MPI_BYTE, static_cast<int>(peer),
                                     static_cast<int>(channel), messages_comm_, request),
                           "MPI_Isend");
                   });
    return ticket;
  }

  Ticket receive(std::int64_t peer, std::int64_t channel, const Landing& landing) override {
    WEFT_CHECK(landing.operand.empty());  // reduces_on_arrival is false
    const Ticket ticket = take_ticket(peer, channel);
    Message& message = message_of(ticket);
    message.scatter = prepare_staging(message, landing.dst) > 0 ? landing.dst : std::span<const Segment>{};
    const auto await_one = [&](const SegmentCursor& cursor, std::int64_t count, std::int64_t staged) {
      std::byte* const data = staged >= 0 ? message.staging.data() + staged : count > 0 ? cursor.data() : nullptr;
      ++message.open_requests;
      arrivals_.await(channel, {ticket, peer, data, count},
                      [&](const AwaitedPiece& awaited, ArrivedPiece arrived) { land(awaited, arrived); });
    };
    if (message.bytes == 0) await_one({}, 0, -1);
    for_each_piece(landing.dst, message.bytes, options_, await_one);
    return ticket;
  }

  // The library is polled for all messages at once, and once per round. A second question about the same ticket begins
  // the next round.
  bool done(Ticket ticket) override {
    Message& message = message_of(ticket);
    WEFT_CHECK(message.in_use);
    if (!message.failure.empty()) throw RunFailed(message.failure);
    if (message.open_requests > 0 && message.asked_in_round == round_) make_progress();
    message.asked_in_round = round_;
    if (message.open_requests > 0) return false;
    message.in_use = false;
    free_tickets_.push_back(ticket.value);
    return true;
  }

  void pause(Clock::time_point until) override {
    if (!prepared_thread_) {
      become_communication_thread();
      prepared_thread_ = true;
    }
    if (std::exchange(news_, false)) return;
    if (requests_.empty() && !arrivals_.awaits_any()) {
      sleep_.sleep_until(until);
      return;
    }
    while (!sleep_.take_wake()) {
      make_progress();
      if (std::exchange(news_, false)) return;
      const Clock::time_point now = Clock::now();
      if (now >= until) return;
      const IdleStep step = idle_.next(now);
      if (step == IdleStep::yield) sched_yield();
      if (step == IdleStep::sleep && sleep_.sleep_until(std::min(until, now + idle_.sleep()))) return;
    }
  }

  void wake() override { sleep_.wake(); }
  std::uint64_t moved() const override { return moved_; }
  TransportFeatures features() override {
    return {.through_memory = options_.one_machine, .health = options_.health, .library = this};
  }

 private:
  std::unique_ptr<NativeCollective> prepare(const NativeRequest& request) override {
    return make_mpi_collective(session_, groups_comm_, groups_, request);
  }

  void check(int code, std::string_view call) {
    if (code == MPI_SUCCESS) return;
    session_->abandon();
    mpi_check(code, call);
  }

  void check_highest_tag() {
    int* highest = nullptr;
    int known = 0;
    check(MPI_Comm_get_attr(messages_comm_, MPI_TAG_UB, &highest, &known), "MPI_Comm_get_attr");
    if (!known || *highest < kMaxChannel) {
      fail("this MPI library's highest tag is {}; Weft needs {}", known ? *highest : 0, kMaxChannel);
    }
  }

  Message& message_of(Ticket ticket) { return messages_.at(ticket.value); }

  Ticket take_ticket(std::int64_t peer, std::int64_t channel) {
    WEFT_CHECK(peer >= 0 && peer < size());
    WEFT_CHECK(channel >= 0 && channel <= kMaxChannel);
    if (free_tickets_.empty()) {
      free_tickets_.push_back(std::ssize(messages_));
      messages_.emplace_back();
    }
    const Ticket ticket{free_tickets_.back()};
    free_tickets_.pop_back();
    message_of(ticket).in_use = true;
    message_of(ticket).failure.clear();
    message_of(ticket).asked_in_round = 0;
    return ticket;
  }

  // Reserves memory before any request, because buffers under way must not move.
  std::int64_t prepare_staging(Message& message, std::span<const Segment> segments) {
    message.bytes = total_bytes(segments);
    const std::int64_t staged =
        for_each_piece(segments, message.bytes, options_, [](const SegmentCursor&, std::int64_t, std::int64_t) {});
    if (std::ssize(message.staging) < staged) message.staging.resize(staged);
    return staged;
  }

  template <class Start>
  void start_requests(Ticket ticket, std::span<const Segment> segments, const Start& start) {
    const auto start_one = [&](const SegmentCursor& cursor, std::int64_t count, std::int64_t staged) {
      MPI_Request request = MPI_REQUEST_NULL;
      start(cursor, count, staged, &request);
      add_request(ticket, request);
      ++message_of(ticket).open_requests;
    };
    // An empty message is sent too, because the other end counts messages.
    const std::int64_t bytes = message_of(ticket).bytes;
    if (bytes == 0) start_one({}, 0, -1);
    for_each_piece(segments, bytes, options_, start_one);
  }

  void add_request(Ticket ticket, MPI_Request request) {
    requests_.push_back(request);
    owners_.push_back(ticket);
    finished_.resize(requests_.size());
  }

  // A message never goes into memory that is too short: one of another length ends the call that waits for it. Whoever
  // polls its ticket knows which call that is.
  void land(const AwaitedPiece& awaited, ArrivedPiece arrived) {
    Message& message = message_of(awaited.ticket);
    if (arrived.bytes != awaited.bytes) {
      session_->abandon();
      const bool whole = awaited.bytes == message.bytes;
      message.failure =
          fmt::format("rank {} expects {} bytes of rank {}, which sends {}{}", rank(), awaited.bytes, awaited.peer,
                      arrived.bytes, whole ? "" : fmt::format(" (in a piece of a message of {})", message.bytes));
      news_ = true;
      return;
    }
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Imrecv(awaited.data, static_cast<int>(awaited.bytes), MPI_BYTE, &arrived.message, &request),
          "MPI_Imrecv");
    add_request(awaited.ticket, request);
  }

  void unpack(const Message& message) const {
    if (message.scatter.empty()) return;
    for_each_piece(message.scatter, message.bytes, options_,
                   [&](SegmentCursor cursor, std::int64_t count, std::int64_t staged) {
                     if (staged >= 0) cursor.copy_in(message.staging.data() + staged, count);
                   });
  }

  void make_progress() {
    ++round_;
    arrivals_.look(
        messages_comm_, [this](int code, std::string_view call) { check(code, call); },
        [this](const AwaitedPiece& awaited, const ArrivedPiece& arrived) { land(awaited, arrived); });
    if (requests_.empty()) return;
    int count = 0;
    check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, finished_.data(),
                       MPI_STATUSES_IGNORE),
          "MPI_Testsome");
    if (count == MPI_UNDEFINED || count == 0) return;
    moved_ += static_cast<std::uint64_t>(count);
    for (int i = 0; i < count; ++i) {
      Message& message = message_of(owners_[finished_[i]]);
      if (--message.open_requests > 0) continue;
      unpack(message);
      message.scatter = {};
      news_ = true;
    }
    forget_finished();
    idle_.happened(Clock::now());
  }

  void forget_finished() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      requests_[kept] = requests_[i];
      owners_[kept] = owners_[i];
      ++kept;
    }
    requests_.resize(kept);
    owners_.resize(kept);
  }

  std::shared_ptr<MpiSession> session_;
  MpiOptions options_;
  MPI_Comm messages_comm_ = MPI_COMM_NULL;
  // Open MPI 4.1 makes a group's communicator by messages with the caller's tag, which a probe for any tag would take.
  MPI_Comm groups_comm_ = MPI_COMM_NULL;
  MpiGroups groups_;
  std::vector<Message> messages_;  // by ticket
  std::vector<std::int64_t> free_tickets_;
  MpiArrivals arrivals_;
  std::vector<MPI_Request> requests_;  // all under way, and beside each its ticket
  std::vector<Ticket> owners_;
  std::vector<int> finished_;  // where MPI_Testsome writes
  std::uint64_t moved_ = 0;    // pieces
  std::uint64_t round_ = 1;
  bool news_ = false;  // a message was completed since the last pause, so the caller should poll before pausing
  IdleStrategy idle_;
  WakeableSleep sleep_;
  bool prepared_thread_ = false;
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(std::shared_ptr<MpiSession> session, const MpiOptions& options) {
  return std::make_unique<MpiTransport>(std::move(session), options);
}

std::unique_ptr<Transport> make_mpi_transport(const MpiOptions& options) {
  return make_mpi_transport(std::make_shared<MpiSession>(), options);
}

}  // namespace weft
