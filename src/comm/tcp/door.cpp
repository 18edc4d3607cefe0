#include "comm/tcp/door.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace weft::tcp {

namespace {

// With so many places, a stranger that connects again and again needs longer to push an honest visitor out than that
// visitor needs to answer.
constexpr std::size_t kMaxStrangers = 256;
// Pause after a failure to accept; the system would report the same connection again at once.
constexpr std::chrono::milliseconds kRetryPeriod{50};

}  // namespace

std::size_t max_visitors(std::int64_t ranks) {
  return kMaxStrangers + static_cast<std::size_t>(ranks);
}

Door::Door(Socket listener, DoorOptions options) : listener_(std::move(listener)), options_(std::move(options)) {}

std::vector<Guest> Door::wait(Clock::time_point deadline, std::vector<pollfd>& others) {
  const bool closed = Clock::now() < closed_until_;
  if (closed) deadline = std::min(deadline, closed_until_);
  std::vector<pollfd> watched{{closed ? -1 : listener_.fd(), POLLIN, 0}};
  for (const Visitor& visitor : visitors_) {
    watched.push_back({visitor.socket().fd(), POLLIN, 0});
    deadline = std::min(deadline, visitor.deadline());
  }
  const auto first_other = static_cast<std::ptrdiff_t>(watched.size());
  watched.insert(watched.end(), others.begin(), others.end());
  if (::poll(watched.data(), watched.size(), poll_milliseconds(deadline)) < 0) {
    for (pollfd& each : watched) each.revents = 0;
  }
  std::copy(watched.begin() + first_other, watched.end(), others.begin());
  std::vector<Guest> guests;
  answer_visitors(watched, guests);
  if (watched[0].revents != 0) take_visitors();
  return guests;
}

// Visitors are answered before others are accepted, because those may push them out.
void Door::answer_visitors(const std::vector<pollfd>& watched, std::vector<Guest>& guests) {
  std::deque<Visitor> left;
  for (std::size_t i = 0; i < visitors_.size(); ++i) {
    Visitor& visitor = visitors_[i];
    const bool is_over = Clock::now() >= visitor.deadline();
    Visitor::Status status = Visitor::Status::speaking;
    if (watched[i + 1].revents != 0 || is_over)
      status = visitor.receive_answer(options_.key, options_.purpose, options_.rank);
    if (status == Visitor::Status::other_key) ++other_keys_;
    if (status == Visitor::Status::guest) guests.push_back({visitor.claim(), visitor.take_socket()});
    if (status == Visitor::Status::speaking) left.push_back(std::move(visitor));
  }
  visitors_ = std::move(left);
}

// Accepts at most half of the places at once, so that every visitor is answered at least once before it may have to go.
void Door::take_visitors() {
  std::size_t at_once = max_visitors(options_.size) / 2;
  bool could_not = false;  // at the last attempt
  for (std::size_t i = 0; i < at_once; ++i) {
    Socket socket;
    const Outcome outcome = accept_from(listener_, socket);
    if (!outcome.ok()) {
      cannot_take_ = outcome.reason;
      // A visitor that is dropped frees a file for another. If that does not help, or nobody can be dropped, the door
      // pauses.
      if (could_not || !make_room()) {
        closed_until_ = Clock::now() + kRetryPeriod;
        return;
      }
      at_once = std::min(at_once, i + 1 + visitors_.size());
      could_not = true;
      continue;
    }
    could_not = false;
    if (!socket) return;
    if (visitors_.size() >= max_visitors(options_.size)) make_room();
    visitors_.emplace_back(std::move(socket));
  }
}

// Drops a visitor that has sent nothing, or else the oldest one without a proof; an honest rank tries again. Returns
// whether one was dropped.
bool Door::make_room() {
  auto goes = std::find_if(visitors_.begin(), visitors_.end(), [](const Visitor& each) { return !each.has_greeted(); });
  if (goes == visitors_.end()) {
    goes =
        std::find_if(visitors_.begin(), visitors_.end(), [](const Visitor& each) { return !each.has_proven_itself(); });
  }
  if (goes == visitors_.end()) return false;
  visitors_.erase(goes);
  return true;
}

std::string Door::remarks() const {
  std::string text;
  if (other_keys_ > 0) {
    text += fmt::format("; {} connection{} came with another secret", other_keys_, other_keys_ == 1 ? "" : "s");
  }
  if (!cannot_take_.empty()) text += fmt::format("; some connections could not be taken: {}", cannot_take_);
  return text;
}

Socket Door::wait_for_one(Clock::time_point deadline) {
  std::vector<pollfd> others;
  while (Clock::now() < deadline) {
    std::vector<Guest> guests = wait(deadline, others);
    if (!guests.empty()) return std::move(guests.front().socket);
  }
  return {};
}

Socket enter(const Address& address, const Claim& claim, const std::string& key, Clock::time_point deadline) {
  Socket socket;
  while (Clock::now() < deadline) {
    Outcome outcome = connect_to(address, deadline, socket);
    if (outcome.ok()) outcome = prove_to_host(socket, claim, key, std::min(deadline, Clock::now() + kHandshakeTime));
    if (outcome.ok()) return socket;
    std::this_thread::sleep_for(kRetryPeriod);
  }
  return {};
}

}  // namespace weft::tcp
