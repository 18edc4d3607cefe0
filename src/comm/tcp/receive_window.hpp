// How much a peer may have under way to us before we have read it.
//
// Where streams from several peers meet at one host, each that the system lets run ahead fills the queues on the way:
// packets are dropped, ready frames wait behind data, and who came first holds up the others. On slow links a small
// window loses nothing and keeps the queues short, so a link begins with one; where data comes fast for the way's round
// trip the window is given back to the system, which then finds the right size by itself.
#pragma once

#include <cstdint>

#include "comm/tcp/socket.hpp"

namespace weft::tcp {

class ReceiveWindow {
 public:
  explicit ReceiveWindow(const Socket& socket);
  // After every read.
  void received(std::int64_t bytes, Clock::time_point now);
  // Bytes to have come before they are read: what is not read makes the window smaller.
  std::int64_t min_read_bytes() const;

 private:
  void release();

  const Socket& socket_;
  bool small_ = false;
  std::int64_t bytes_ = 0;  // since
  Clock::time_point since_;
};

}  // namespace weft::tcp
