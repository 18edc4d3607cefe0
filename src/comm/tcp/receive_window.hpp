// Limits how much a peer may send before we have read it.
//
// Where streams from several peers meet at one host, each that the system lets run ahead fills the queues on the way:
// packets are dropped, ready frames wait behind data, and the first stream holds up the others. On slow links a small
// window loses nothing and keeps queues short, so a link begins with one. If data arrives fast for the round trip, the
// window is given back to the system, which then finds the right size by itself.
#pragma once

#include <cstdint>

#include "comm/tcp/socket.hpp"

namespace weft::tcp {

class ReceiveWindow {
 public:
  explicit ReceiveWindow(const Socket& socket);
  // After every read.
  void received(std::int64_t bytes, Clock::time_point now);
  // Bytes that should have arrived before they are read. It is small because unread bytes shrink the window.
  std::int64_t min_read_bytes() const;

 private:
  void release();

  const Socket& socket_;
  bool small_ = false;
  std::int64_t bytes_ = 0;  // since
  Clock::time_point since_;
};

}  // namespace weft::tcp
