#include "comm/tcp/rendezvous.hpp"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <thread>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "comm/tcp/door.hpp"
#include "comm/tcp/handshake.hpp"
#include "comm/tcp/message.hpp"

namespace weft::tcp {

namespace {

constexpr const char* kPurpose = "rendezvous";
constexpr std::chrono::milliseconds kRetryPeriod{50};
constexpr std::chrono::milliseconds kTimeForReason{
    2000};  // beyond the deadline: rank 0 decides, so the others wait longer

std::string seconds_text(std::chrono::milliseconds time) {
  return fmt::format("{:.3g} s", static_cast<double>(time.count()) / 1e3);
}

std::string rank_list(const std::vector<std::int64_t>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

void check_options(const RendezvousOptions& options) {
  if (options.size < 1) fail("rendezvous: {} ranks; expected one or more", options.size);
  if (options.rank < 0 || options.rank >= options.size) {
    fail("rendezvous: rank {} is not in 0..{}", options.rank, options.size - 1);
  }
}

// A host name may stand for another address on its own machine than on the others, so rank 0 listens on all interfaces
// for it. A numeric address is used alone, if this machine has it.
Address listening_place(const std::string& root) {
  Address address = parse_address(root, "address of rank 0");
  const std::vector<Interface> here = interfaces();
  const bool is_ours =
      std::any_of(here.begin(), here.end(), [&](const Interface& one) { return dotted(one.address) == address.host; });
  if (!is_loopback(address.host) && !is_ours) address.host.clear();
  return address;
}

Socket open_listener(const RendezvousOptions& options) {
  if (options.root_listener < 0) return listen_on(listening_place(options.root));
  Socket listener(options.root_listener);
  const int flags = ::fcntl(listener.fd(), F_GETFL);
  ::fcntl(listener.fd(), F_SETFL, flags | O_NONBLOCK);
  ::fcntl(listener.fd(), F_SETFD, FD_CLOEXEC);
  return listener;
}

}  // namespace

Rendezvous::Rendezvous(RendezvousOptions options) : options_(std::move(options)) {
  check_options(options_);
  members_.resize(options_.rank == 0 ? options_.size : 1);
  if (options_.size == 1) return;
  if (options_.rank == 0) {
    serve();
  } else {
    request_entry();
  }
}

void Rendezvous::abandon(bool bad_input, const std::string& why) {
  const auto deadline = Clock::now() + std::chrono::milliseconds(200);
  for (const Socket& member : members_) {
    if (member) {
      // A rank that does not receive this will see the connection close.
      std::ignore = send_message(member, bad_input ? MessageKind::bad_input : MessageKind::failed,
                                 why.substr(0, kMaxReasonBytes), deadline);
    }
  }
  if (bad_input) throw Error(why);
  throw RunFailed(why);
}

namespace {

// Rank 0's side: admits the ranks one by one. `problem` says what cannot be mended.
class Reception {
 public:
  Reception(const RendezvousOptions& options, std::vector<Socket>& members)
      : options_(options),
        members_(members),
        door_(open_listener(options), {kPurpose, options.rank, options.size, options.secret}) {}

  std::vector<std::int64_t> missing() const {
    std::vector<std::int64_t> ranks;
    for (std::int64_t rank = 1; rank < options_.size; ++rank) {
      if (!members_[rank]) ranks.push_back(rank);
    }
    return ranks;
  }

  // Waits for news until the deadline and deals with it.
  void pass(Clock::time_point deadline) {
    // A member sends nothing before all are here, so anything readable from it is its end.
    std::vector<pollfd> watched;
    for (const Socket& member : members_) watched.push_back({member.fd(), POLLIN, 0});
    std::vector<Guest> guests = door_.wait(deadline, watched);
    for (std::size_t rank = 1; rank < members_.size(); ++rank) {
      if (!members_[rank] || watched[rank].revents == 0 || !problem.empty()) continue;
      problem = fmt::format("rank {} left before all ranks had come", rank);
      members_[rank].close();
    }
    for (Guest& guest : guests) take(guest);
  }

  std::string remarks() const { return door_.remarks(); }

  std::string problem;
  bool bad_input = false;

 private:
  void take(Guest& guest) {
    const auto [purpose, rank, to, size] = guest.claim;
    if (size != options_.size) {
      refuse(guest,
             fmt::format("rank {} was started as one of {} ranks, rank 0 as one of {}", rank, size, options_.size));
    } else if (rank >= options_.size) {
      refuse(guest, fmt::format("a process claims rank {}, which is not in 0..{}", rank, options_.size - 1));
    } else if (rank == 0 || members_[rank]) {
      refuse(guest, fmt::format("two processes claim rank {}", rank));
    } else {
      members_[rank] = std::move(guest.socket);
    }
  }

  void refuse(const Guest& guest, const std::string& why) {
    problem = why;
    bad_input = true;
    std::ignore = send_message(guest.socket, MessageKind::bad_input, why, Clock::now());
  }

  const RendezvousOptions& options_;
  std::vector<Socket>& members_;
  Door door_;
};

}  // namespace

void Rendezvous::serve() {
  const Clock::time_point deadline = Clock::now() + options_.timeout;
  Reception reception(options_, members_);
  while (true) {
    const std::vector<std::int64_t> missing = reception.missing();
    if (missing.empty()) break;
    if (Clock::now() >= deadline) {
      abandon(false, fmt::format("{} did not come within {}{}", rank_list(missing), seconds_text(options_.timeout),
                                 reception.remarks()));
    }
    reception.pass(deadline);
    if (!reception.problem.empty()) abandon(reception.bad_input, reception.problem);
  }
  for (const Socket& member : members_) {
    if (!member) continue;
    const Address own = local_address(member);
    if (own_address_.empty() || is_loopback(own_address_)) own_address_ = own.host;
    std::ignore = send_message(member, MessageKind::welcome, "", deadline);  // a lost member is noticed when it is read
  }
}

// Makes one attempt. Only a host that has proven itself is believed, because its answer may end this rank.
Outcome Rendezvous::try_entry(const Address& root, Clock::time_point deadline) {
  Socket socket;
  Outcome outcome = connect_to(root, deadline, socket);
  if (outcome.ok()) {
    const Claim claim{kPurpose, options_.rank, 0, options_.size};
    outcome = prove_to_host(socket, claim, options_.secret, std::min(deadline, Clock::now() + kHandshakeTime));
  }
  MessageReader reader(kMaxReasonBytes);
  if (outcome.ok()) outcome = reader.read_until(socket, deadline + kTimeForReason);
  if (!outcome.ok()) return outcome;
  if (reader.kind() == MessageKind::bad_input) throw Error(reader.text());
  if (reader.kind() == MessageKind::failed) throw RunFailed(reader.text());
  if (reader.kind() != MessageKind::welcome) return {"it does not want us"};
  own_address_ = local_address(socket).host;
  members_[0] = std::move(socket);
  return {};
}

void Rendezvous::request_entry() {
  const Clock::time_point deadline = Clock::now() + options_.timeout;
  const Address root = parse_address(options_.root, "address of rank 0");
  std::string obstacle = "no answer";
  while (Clock::now() < deadline) {
    const Outcome outcome = try_entry(root, deadline);
    if (outcome.ok()) return;
    obstacle = outcome.reason;
    std::this_thread::sleep_for(kRetryPeriod);
  }
  throw RunFailed(fmt::format("rank {} did not find rank 0 at {} within {}: {}", options_.rank, root.text(),
                              seconds_text(options_.timeout), obstacle));
}

std::vector<std::string> Rendezvous::gather(const std::string& mine, Clock::time_point deadline) {
  std::vector<std::string> texts(members_.size());
  std::vector<MessageReader> readers(members_.size(), MessageReader(kMaxMemberBytes));
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
      if (status == MessageReader::Status::whole && readers[rank].kind() != MessageKind::text) {
        abandon(false, fmt::format("rank {} says something else than the others", rank));
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
  WEFT_CHECK(mine.size() <= kMaxMemberBytes);
  const Clock::time_point deadline = Clock::now() + options_.timeout;
  return options_.rank == 0 ? tell_all(mine, deadline) : ask_rank_0(mine, deadline);
}

std::vector<std::string> Rendezvous::tell_all(const std::string& mine, Clock::time_point deadline) {
  const std::vector<std::string> texts = gather(mine, deadline);
  const std::string all = join_texts(texts);
  if (all.size() > kMaxExchangeBytes) {
    abandon(false, fmt::format("ranks say {} bytes to each other; {} are the most", all.size(), kMaxExchangeBytes));
  }
  for (const Socket& member : members_) {
    if (member) std::ignore = send_message(member, MessageKind::text, all, deadline);
  }
  return texts;
}

std::vector<std::string> Rendezvous::ask_rank_0(const std::string& mine, Clock::time_point deadline) {
  MessageReader reader(kMaxExchangeBytes);
  Outcome outcome = send_message(members_[0], MessageKind::text, mine, deadline);
  if (outcome.ok()) outcome = reader.read_until(members_[0], deadline + kTimeForReason);
  if (!outcome.ok()) throw RunFailed(fmt::format("rank 0 is lost: {}", outcome.reason));
  if (reader.kind() == MessageKind::failed) throw RunFailed(reader.text());
  std::optional<std::vector<std::string>> texts;
  if (reader.kind() == MessageKind::text) texts = split_texts(reader.text());
  if (!texts || std::ssize(*texts) != options_.size) {
    throw RunFailed(fmt::format("rank 0 does not pass on what {} ranks said", options_.size));
  }
  return *texts;
}

}  // namespace weft::tcp
