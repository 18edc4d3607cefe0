// A listening socket that strangers may reach. Visitors that prove that they know the key are admitted. All others
// together hold a bounded number of connections, bytes and time, and cannot keep honest visitors out.
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

// A visitor that has the key. The caller judges its other claims.
struct Guest {
  Claim claim;
  Socket socket;
};

class Door {
 public:
  Door(Socket listener, DoorOptions options);

  // Waits until a visitor sends something, something happens to one of `others` (poll's revents say what), or the
  // deadline. Returns the visitors that were admitted.
  std::vector<Guest> wait(Clock::time_point deadline, std::vector<pollfd>& others);
  // Returns the first visitor that was admitted by then, or none.
  Socket wait_for_one(Clock::time_point deadline);
  // Returns remarks for the case that somebody was waited for in vain; may be empty.
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

// Room for some strangers and all ranks at once.
std::size_t max_visitors(std::int64_t ranks);

// Connects through the door of another rank, as two ranks have agreed. Returns an empty socket where that does not
// succeed in time.
Socket enter(const Address& address, const Claim& claim, const std::string& key, Clock::time_point deadline);

}  // namespace weft::tcp
