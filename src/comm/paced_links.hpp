// The interface of a transport whose links keep a clock of their own (comm/local/paced_network.hpp). It decides when a
// rank has something to do and runs the rank's communication on a thread of its choice; the calls of Transport then
// come from that thread.
#pragma once

#include <functional>

#include "comm/transport.hpp"

namespace weft {

class PacedLinks {
 public:
  // Calls `round` from now on whenever something has happened to this rank. Null ends that; when the call returns,
  // `round` is not running.
  virtual void drive(std::function<void()> round) = 0;
  // Says that `round` has something to do from `since` on. May be called from any thread.
  virtual void request_round(Transport::Clock::time_point since) = 0;
  // Runs `work` while `round` does not run; needed for everything that shares state with it.
  virtual void exclusively(const std::function<void()>& work) = 0;
  // The time of what is being worked on. It lies behind the real clock while the links catch up with it.
  virtual Transport::Clock::time_point now() const = 0;
  // Lands `src` as if it had arrived, in the time that the device takes for it. The ticket ends as those of messages
  // do.
  virtual Ticket land(std::span<const Segment> src, const Landing& landing) = 0;

 protected:
  ~PacedLinks() = default;
};

// The time on the links: the real clock's where they are not paced.
inline Transport::Clock::time_point time_on(const PacedLinks* links) {
  return links != nullptr ? links->now() : Transport::Clock::now();
}

}  // namespace weft
