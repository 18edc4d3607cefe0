// What carries bytes between ranks. One object per rank; ranks are threads (comm/local) or processes (comm/mpi,
// comm/tcp).
//
// All calls but `wake` come from the rank's communication thread (comm/communication_thread.hpp), unless paced links
// run the rank themselves. Nothing blocks: messages are started and then polled until they are done, and polling makes
// progress. In the steady state a transport allocates nothing; the memory of a ticket is kept for the next one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "collective/semantics.hpp"

namespace weft {

class NativeLibrary;
class PacedLinks;
class RankHealth;

struct Segment {
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
};

// What happens to bytes that arrive: they are stored in dst, or dst = operand (+) arrived, element by element.
struct Landing {
  std::span<const Segment> dst;
  std::span<const Segment> operand;  // empty: bytes are stored as they are
  ElementType type = ElementType::fp32;
  ReduceOp op = ReduceOp::sum;
  double scale = 1;  // applied to the result of the reduction; below 1 to average
};

struct Ticket {
  std::int64_t value = -1;
  bool empty() const { return value < 0; }
};

// What a transport offers beside messages. The parts live as long as the transport; null where there is none.
struct TransportFeatures {
  bool reduces_on_arrival = false;  // a Landing may have an operand; otherwise the caller receives first, then reduces
  bool through_memory = false;      // messages between processes are copies within one machine: no links to share
  PacedLinks* paced_links = nullptr;  // comm/paced_links.hpp
  RankHealth* health = nullptr;       // comm/rank_health.hpp
  NativeLibrary* library = nullptr;   // comm/native_library.hpp
};

class Transport {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~Transport() = default;
  virtual std::int64_t rank() const = 0;
  virtual std::int64_t size() const = 0;

  // Messages of one (peer, channel) and direction are received in the order in which they were sent; a receive names
  // exactly as many bytes as its send. The segment lists and the memory they name must stay until the ticket is done.
  // Channels are 0 .. 2^20 - 1. An empty ticket: the bytes have left already; there is nothing to ask for.
  virtual Ticket send(std::int64_t peer, std::int64_t channel, std::span<const Segment> src) = 0;
  virtual Ticket receive(std::int64_t peer, std::int64_t channel, const Landing& landing) = 0;
  // Whether the bytes have left (and the memory may be written) or have landed. A ticket that was reported done is
  // forgotten. Throws RunFailed where the message cannot arrive any more.
  virtual bool done(Ticket ticket) = 0;
  // Sleeps until something may have changed or `until` has come. May return early.
  virtual void pause(Clock::time_point until) = 0;
  // Ends a pause. May be called from any thread.
  virtual void wake() = 0;
  // A number that changes while messages of this rank move, so that slow progress, even within a message, is told from
  // none.
  virtual std::uint64_t moved() const = 0;
  // The same at every call.
  virtual TransportFeatures features() { return {}; }
};

}  // namespace weft
