#include "comm/mpi/mpi_transport.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "comm/mpi/mpi_calls.hpp"

namespace weft {
namespace {

constexpr std::int64_t kHighestChannel = (std::int64_t{1} << 20) - 1;

std::int64_t total_bytes(std::span<const Segment> segments) {
  std::int64_t bytes = 0;
  for (const Segment& segment : segments) bytes += segment.bytes;
  return bytes;
}

// Where the bytes begin, if the segments that have any follow one another in memory; otherwise null.
std::byte* contiguous(std::span<const Segment> segments) {
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
  for (const Segment& segment : segments) {
    if (segment.bytes == 0) continue;
    if (begin == nullptr) {
      begin = segment.data;
    } else if (segment.data != end) {
      return nullptr;
    }
    end = segment.data + segment.bytes;
  }
  return begin;
}

// How long the piece is that begins at `begin`. Depends on the length of the message alone, because the other end may
// have other segments.
std::int64_t piece_length(std::int64_t begin, std::int64_t bytes, const MpiOptions& options) {
  const std::int64_t streamed = std::min(bytes, options.streamed);
  if (begin < streamed) return std::min(options.short_piece, streamed - begin);
  const std::int64_t even = (bytes - streamed + 63) / 64;
  return std::min(std::clamp(even, options.shortest_long_piece, options.longest_piece), bytes - begin);
}

void validate(const MpiOptions& options) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  if (options.short_piece < 1 || options.short_piece > kMost || options.streamed < 0 ||
      options.shortest_long_piece < 1 || options.longest_piece < options.shortest_long_piece ||
      options.longest_piece > kMost) {
    fail("MPI: messages are cut into pieces of {} bytes, then of {} to {}; 1 to {} in rising order are allowed",
         options.short_piece, options.shortest_long_piece, options.longest_piece, kMost);
  }
}

// One ticket. The wire carries the concatenation of the segments. What is scattered in memory passes through `staging`,
// kept for the next ticket.
struct Message {
  std::int64_t open_requests = 0;
  std::uint64_t asked_in_round = 0;
  bool in_use = false;
  std::span<const Segment> scatter;  // a receive's segments, to be filled from staging; else empty
  std::vector<std::byte> staging;

  std::byte* stage(std::int64_t bytes) {
    if (std::ssize(staging) < bytes) staging.resize(static_cast<std::size_t>(bytes));
    return staging.data();
  }
  void unpack() const {
    const std::byte* from = staging.data();
    for (const Segment& segment : scatter) {
      if (segment.bytes == 0) continue;
      std::memcpy(segment.data, from, static_cast<std::size_t>(segment.bytes));
      from += segment.bytes;
    }
  }
};

class MpiTransport final : public Transport {
 public:
  MpiTransport(std::shared_ptr<MpiSession> session, const MpiOptions& options)
      : session_(std::move(session)), options_(options), idle_(options.idle) {
    validate(options_);
    messages_comm_ = duplicate(MPI_COMM_WORLD);
    check_highest_tag();
  }

  ~MpiTransport() override {
    if (!requests_.empty()) session_->abandon();
    if (!session_->state().abandoned) MPI_Comm_free(&messages_comm_);
  }

  std::int64_t rank() const override { return session_->rank(); }
  std::int64_t size() const override { return session_->size(); }

  Ticket send(std::int64_t peer, std::int64_t channel, std::span<const Segment> src) override {
    const Ticket ticket = take_ticket(peer, channel);
    Message& message = message_of(ticket);
    const std::int64_t bytes = total_bytes(src);
    std::byte* data = contiguous(src);
    if (data == nullptr && bytes > 0) {
      data = message.stage(bytes);
      std::byte* to = data;
      for (const Segment& segment : src) {
        if (segment.bytes == 0) continue;
        std::memcpy(to, segment.data, static_cast<std::size_t>(segment.bytes));
        to += segment.bytes;
      }
    }
    start_requests(ticket, bytes, [&](std::int64_t begin, int count, MPI_Request* request) {
      check(MPI_Isend(data + begin, count, MPI_BYTE, static_cast<int>(peer), static_cast<int>(channel), messages_comm_,
                      request),
            "MPI_Isend");
    });
    return ticket;
  }

  Ticket receive(std::int64_t peer, std::int64_t channel, const Landing& landing) override {
    WEFT_CHECK(landing.operand.empty());  // reduces_on_arrival() is false
    const Ticket ticket = take_ticket(peer, channel);
    Message& message = message_of(ticket);
    const std::int64_t bytes = total_bytes(landing.dst);
    std::byte* data = contiguous(landing.dst);
    message.scatter = {};
    if (data == nullptr && bytes > 0) {
      data = message.stage(bytes);
      message.scatter = landing.dst;
    }
    start_requests(ticket, bytes, [&](std::int64_t begin, int count, MPI_Request* request) {
      check(MPI_Irecv(data + begin, count, MPI_BYTE, static_cast<int>(peer), static_cast<int>(channel), messages_comm_,
                      request),
            "MPI_Irecv");
    });
    return ticket;
  }

  // The library is asked about all messages at once, and once in a round: the first question about a ticket that was
  // asked for in this round already begins the next one.
  bool done(Ticket ticket) override {
    Message& message = message_of(ticket);
    WEFT_CHECK(message.in_use);
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
    if (requests_.empty()) {
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

  std::unique_ptr<NativeCollective> native(const NativeRequest& request) override {
    return make_mpi_collective(session_, messages_comm_, request);
  }

  void give_up(const std::string& why) override {
    if (options_.give_up) options_.give_up(why);
  }
  std::optional<LostRank> lost() override { return options_.lost ? options_.lost() : std::nullopt; }

  std::chrono::nanoseconds silence(std::int64_t rank) override {
    return options_.silence ? options_.silence(rank) : std::chrono::nanoseconds(0);
  }

 private:
  void check(int code, std::string_view call) {
    if (code == MPI_SUCCESS) return;
    session_->abandon();
    mpi_check(code, call);
  }

  void check_highest_tag() {
    int* highest = nullptr;
    int known = 0;
    check(MPI_Comm_get_attr(messages_comm_, MPI_TAG_UB, &highest, &known), "MPI_Comm_get_attr");
    if (!known || *highest < kHighestChannel) {
      fail("this MPI library's highest tag is {}; Weft needs {}", known ? *highest : 0, kHighestChannel);
    }
  }

  Message& message_of(Ticket ticket) { return messages_.at(static_cast<std::size_t>(ticket.value)); }

  Ticket take_ticket(std::int64_t peer, std::int64_t channel) {
    WEFT_CHECK(peer >= 0 && peer < size());
    WEFT_CHECK(channel >= 0 && channel <= kHighestChannel);
    if (free_tickets_.empty()) {
      free_tickets_.push_back(std::ssize(messages_));
      messages_.emplace_back();
    }
    const Ticket ticket{free_tickets_.back()};
    free_tickets_.pop_back();
    message_of(ticket).in_use = true;
    message_of(ticket).asked_in_round = 0;
    return ticket;
  }

  // Nothing to carry is carried too: the other end counts messages.
  template <class Start>
  void start_requests(Ticket ticket, std::int64_t bytes, const Start& start) {
    std::int64_t begin = 0;
    do {
      const std::int64_t count = piece_length(begin, bytes, options_);
      MPI_Request request = MPI_REQUEST_NULL;
      start(begin, static_cast<int>(count), &request);
      requests_.push_back(request);
      owners_.push_back(ticket);
      ++message_of(ticket).open_requests;
      begin += count;
    } while (begin < bytes);
    finished_.resize(requests_.size());
  }

  void make_progress() {
    ++round_;
    if (requests_.empty()) return;
    int count = 0;
    check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count, finished_.data(),
                       MPI_STATUSES_IGNORE),
          "MPI_Testsome");
    if (count == MPI_UNDEFINED || count == 0) return;
    for (int i = 0; i < count; ++i) {
      Message& message = message_of(owners_[static_cast<std::size_t>(finished_[static_cast<std::size_t>(i)])]);
      if (--message.open_requests > 0) continue;
      message.unpack();
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
  std::vector<Message> messages_;  // by ticket
  std::vector<std::int64_t> free_tickets_;
  std::vector<MPI_Request> requests_;  // all under way, and beside each its ticket
  std::vector<Ticket> owners_;
  std::vector<int> finished_;  // where MPI_Testsome writes
  std::uint64_t round_ = 1;
  bool news_ = false;  // a message was completed since the last pause: the caller should look first
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
