#include "comm/tcp/rendezvous.hpp"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <thread>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "comm/tcp/message.hpp"

namespace weft::tcp {

namespace {

constexpr std::chrono::seconds kGreetingTime{5};  // for a connection to say who it is
constexpr std::chrono::milliseconds kKnockAgain{50};
constexpr std::chrono::milliseconds kTimeToHearWhy{2000};  // rank 0 decides; the others wait a little longer than it

struct Greeting {
  std::int64_t rank = -1;
  std::int64_t size = -1;
  std::string job;
};

std::string to_text(const Greeting& greeting) {
  return fmt::format("{} {} {}", greeting.rank, greeting.size, greeting.job);
}

Greeting greeting_from(const std::string& text) {
  Greeting greeting;
  std::istringstream words(text);
  words >> greeting.rank >> greeting.size;
  words.get();
  std::getline(words, greeting.job);
  return greeting;
}

std::string encode(const std::vector<std::string>& texts) {
  std::string bytes;
  for (const std::string& text : texts) bytes += fmt::format("{} {}", text.size(), text);
  return bytes;
}

std::vector<std::string> decode(const std::string& bytes) {
  std::vector<std::string> texts;
  std::size_t at = 0;
  while (at < bytes.size()) {
    const std::size_t space = bytes.find(' ', at);
    WEFT_CHECK(space != std::string::npos);
    const std::size_t length = std::stoul(bytes.substr(at, space - at));
    texts.push_back(bytes.substr(space + 1, length));
    at = space + 1 + length;
  }
  return texts;
}

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{:.3g} s", static_cast<double>(time.count()) / 1e3);
}

// Somebody who has connected and not yet said who it is.
struct Visitor {
  Socket socket;
  MessageReader reader;
  Clock::time_point deadline;
};

std::string rank_list(const std::vector<std::int64_t>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

void check_options(const RendezvousOptions& options) {
  if (options.size < 1) fail("rendezvous: {} ranks; expected one or more", options.size);
  if (options.rank < 0 || options.rank >= options.size) {
    fail("rendezvous: rank {} is not in 0..{}", options.rank, options.size - 1);
  }
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host.starts_with("127.");
}

}  // namespace

Rendezvous::Rendezvous(RendezvousOptions options) : options_(std::move(options)) {
  check_options(options_);
  members_.resize(static_cast<std::size_t>(options_.rank == 0 ? options_.size : 1));
  if (options_.size == 1) return;
  if (options_.rank == 0) {
    serve();
  } else {
    knock();
  }
}

void Rendezvous::abandon(bool bad_input, const std::string& why) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(200);
  for (const Socket& member : members_) {
    if (member) {
      // Whoever does not take it will see the connection close.
      std::ignore = send_message(member, bad_input ? MessageKind::bad_input : MessageKind::failed, why, deadline);
    }
  }
  if (bad_input) throw Error(why);
  throw RunFailed(why);
}

namespace {

// Rank 0's side: a door that lets ranks in one by one.
class Door {
 public:
  Door(const RendezvousOptions& options, std::vector<Socket>& members) : options_(options), members_(members) {
    if (options.root_listener >= 0) {
      listener_ = Socket(options.root_listener);
      const int flags = ::fcntl(listener_.fd(), F_GETFL);
      ::fcntl(listener_.fd(), F_SETFL, flags | O_NONBLOCK);
      ::fcntl(listener_.fd(), F_SETFD, FD_CLOEXEC);
      return;
    }
    Address address = parse_address(options.root, "address of rank 0");
    // A name may stand for a loopback address on its own machine, so listen on all interfaces, unless loopback is
    // meant.
    if (!is_loopback(address.host)) address.host.clear();
    listener_ = listen_on(address);
  }

  std::vector<std::int64_t> missing() const {
    std::vector<std::int64_t> ranks;
    for (std::int64_t rank = 1; rank < options_.size; ++rank) {
      if (!members_[static_cast<std::size_t>(rank)]) ranks.push_back(rank);
    }
    return ranks;
  }

  // Waits for news until the deadline and deals with it. What cannot be mended is said in `problem`.
  void pass(Clock::time_point deadline) {
    std::vector<pollfd> watched{{listener_.fd(), POLLIN, 0}};
    for (const Visitor& visitor : visitors_) {
      watched.push_back({visitor.socket.fd(), POLLIN, 0});
      deadline = std::min(deadline, visitor.deadline);
    }
    // A member says nothing before all are here: what can be read from it is its end.
    for (const Socket& member : members_) watched.push_back({member.fd(), POLLIN, 0});
    ::poll(watched.data(), watched.size(), poll_milliseconds(deadline));
    while (Socket socket = accept_from(listener_)) {
      visitors_.push_back({std::move(socket), {}, Clock::now() + kGreetingTime});
    }
    std::erase_if(visitors_, [&](Visitor& visitor) { return hear(visitor); });
    const std::size_t first_member = watched.size() - members_.size();
    for (std::size_t rank = 1; rank < members_.size(); ++rank) {
      if (watched[first_member + rank].fd >= 0 && watched[first_member + rank].revents != 0 && problem.empty()) {
        problem = fmt::format("rank {} left before all ranks had come", rank);
        members_[rank].close();
      }
    }
  }

  std::string problem;
  bool bad_input = false;

 private:
  // Whether the visitor is dealt with: let in, or sent away.
  bool hear(Visitor& visitor) {
    const MessageReader::Status status = visitor.reader.read(visitor.socket);
    if (status == MessageReader::Status::more) return Clock::now() >= visitor.deadline;
    if (status == MessageReader::Status::broken || visitor.reader.kind() != MessageKind::greeting) return true;
    const Greeting greeting = greeting_from(visitor.reader.text());
    if (greeting.job != options_.job) {
      answer(visitor, MessageKind::other_job, options_.job);
    } else if (greeting.size != options_.size) {
      refuse(visitor, fmt::format("rank {} was started as one of {} ranks, rank 0 as one of {}", greeting.rank,
                                  greeting.size, options_.size));
    } else if (greeting.rank < 0 || greeting.rank >= options_.size) {
      refuse(visitor, fmt::format("a process claims rank {}, which is not in 0..{}", greeting.rank, options_.size - 1));
    } else if (greeting.rank == 0 || members_[static_cast<std::size_t>(greeting.rank)]) {
      refuse(visitor, fmt::format("two processes claim rank {}", greeting.rank));
    } else {
      members_[static_cast<std::size_t>(greeting.rank)] = std::move(visitor.socket);
    }
    return true;
  }

  void answer(const Visitor& visitor, MessageKind kind, const std::string& text) {
    std::ignore = send_message(visitor.socket, kind, text, Clock::now() + std::chrono::milliseconds(200));
  }

  void refuse(const Visitor& visitor, const std::string& why) {
    problem = why;
    bad_input = true;
    answer(visitor, MessageKind::bad_input, why);
  }

  const RendezvousOptions& options_;
  std::vector<Socket>& members_;
  Socket listener_;
  std::vector<Visitor> visitors_;
};

}  // namespace

void Rendezvous::serve() {
  const Clock::time_point deadline = Clock::now() + options_.timeout;
  Door door(options_, members_);
  while (true) {
    const std::vector<std::int64_t> missing = door.missing();
    if (missing.empty()) break;
    if (Clock::now() >= deadline) {
      abandon(false, fmt::format("{} did not come within {}", rank_list(missing), seconds_text(options_.timeout)));
    }
    door.pass(deadline);
    if (!door.problem.empty()) abandon(door.bad_input, door.problem);
  }
  for (const Socket& member : members_) {
    if (!member) continue;
    const Address own = local_address(member);
    if (own_address_.empty() || is_loopback(own_address_)) own_address_ = own.host;
    std::ignore = send_message(member, MessageKind::welcome, "", deadline);  // a lost member is noticed when it is read
  }
}

void Rendezvous::knock() {
  const Clock::time_point deadline = Clock::now() + options_.timeout;
  const Address root = parse_address(options_.root, "address of rank 0");
  std::string obstacle = "no answer";
  while (Clock::now() < deadline) {
    Socket socket;
    Outcome outcome = connect_to(root, deadline, socket);
    MessageReader reader;
    const auto until = deadline + kTimeToHearWhy;
    if (outcome.ok()) {
      const Greeting greeting{options_.rank, options_.size, options_.job};
      outcome = send_message(socket, MessageKind::greeting, to_text(greeting), deadline);
    }
    if (outcome.ok()) outcome = reader.read_until(socket, until);
    if (outcome.ok()) {
      if (reader.kind() == MessageKind::bad_input) throw Error(reader.text());
      if (reader.kind() == MessageKind::failed) throw RunFailed(reader.text());
      if (reader.kind() == MessageKind::welcome) {
        own_address_ = local_address(socket).host;
        members_[0] = std::move(socket);
        return;
      }
      outcome.reason = fmt::format("it serves another job ('{}', ours is '{}')", reader.text(), options_.job);
    }
    obstacle = outcome.reason;
    std::this_thread::sleep_for(kKnockAgain);
  }
  throw RunFailed(fmt::format("rank {} did not find rank 0 at {} within {}: {}", options_.rank, root.text(),
                              seconds_text(options_.timeout), obstacle));
}

std::vector<std::string> Rendezvous::gather(const std::string& mine, Clock::time_point deadline) {
  std::vector<std::string> texts(members_.size());
  std::vector<MessageReader> readers(members_.size());
  std::vector<bool> here(members_.size());
  texts[0] = mine;
  here[0] = true;
  while (true) {
    std::vector<pollfd> watched;
    std::vector<std::int64_t> missing;
    for (std::size_t rank = 1; rank < members_.size(); ++rank) {
      if (here[rank]) continue;
      const MessageReader::Status status = readers[rank].read(members_[rank]);
      if (status == MessageReader::Status::broken) {
        members_[rank].close();
        abandon(false, fmt::format("rank {} is lost: {}", rank, readers[rank].reason()));
      }
      if (status == MessageReader::Status::whole) {
        here[rank] = true;
        texts[rank] = readers[rank].text();
      } else {
        missing.push_back(static_cast<std::int64_t>(rank));
        watched.push_back({members_[rank].fd(), POLLIN, 0});
      }
    }
    if (missing.empty()) return texts;
    if (Clock::now() >= deadline) {
      abandon(false, fmt::format("{} said nothing within {}", rank_list(missing), seconds_text(options_.timeout)));
    }
    ::poll(watched.data(), watched.size(), poll_milliseconds(deadline));
  }
}

std::vector<std::string> Rendezvous::exchange(const std::string& mine) {
  if (options_.size == 1) return {mine};
  const Clock::time_point deadline = Clock::now() + options_.timeout;
  if (options_.rank == 0) {
    const std::vector<std::string> texts = gather(mine, deadline);
    const std::string all = encode(texts);
    for (const Socket& member : members_) {
      if (member) std::ignore = send_message(member, MessageKind::text, all, deadline);
    }
    return texts;
  }
  MessageReader reader;
  Outcome outcome = send_message(members_[0], MessageKind::text, mine, deadline);
  if (outcome.ok()) outcome = reader.read_until(members_[0], deadline + kTimeToHearWhy);
  if (!outcome.ok()) throw RunFailed(fmt::format("rank 0 is lost: {}", outcome.reason));
  if (reader.kind() == MessageKind::failed) throw RunFailed(reader.text());
  return decode(reader.text());
}

}  // namespace weft::tcp
