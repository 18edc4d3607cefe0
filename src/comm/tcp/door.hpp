// A listening socket with strangers before it. Who proves to know the key is let in; all others together hold a bounded
// number of connections, of bytes and of time, and can neither get in nor keep others out by standing there.
#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "comm/tcp/handshake.hpp"
#include "comm/tcp/socket.hpp"

namespace weft::tcp {

struct DoorOptions {
  std::string purpose;    // that visitors come for
  std::int64_t rank = 0;  // ours, to which they come
  std::int64_t size = 1;  // how many ranks may come at once
  std::string key;
};

// Somebody who has the key. What it claims besides is for the caller to judge.
struct Guest {
  Claim claim;
  Socket socket;
};

class Door {
 public:
  Door(Socket listener, DoorOptions options);

  // Waits until somebody speaks, something happens to one of `others` (poll's revents say what), or the deadline.
  // Returns who was let in.
  std::vector<Guest> wait(Clock::time_point deadline, std::vector<pollfd>& others);
  // The first who was let in by then, or none.
  Socket wait_for_one(Clock::time_point deadline);
  // What is worth telling where somebody was waited for in vain; may be empty.
  std::string remarks() const;

 private:
  void take_visitors();
  bool make_room();
  void answer_visitors(const std::vector<pollfd>& watched, std::vector<Guest>& guests);

  Socket listener_;
  DoorOptions options_;
  std::deque<Visitor> visitors_;  // who came first is first
  Clock::time_point closed_until_;
  std::string cannot_take_;  // why connections could not be taken
  std::int64_t other_keys_ = 0;
};

// Some strangers and all ranks at once.
std::size_t max_visitors(std::int64_t ranks);

// For connections that two ranks have agreed on: goes through the door of the other one. Empty where that is not there
// in time.
Socket enter(const Address& address, const Claim& claim, const std::string& key, Clock::time_point deadline);

}  // namespace weft::tcp
