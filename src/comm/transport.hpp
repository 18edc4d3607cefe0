// What carries bytes between ranks. One object per rank; ranks are threads (comm/local) or processes (comm/mpi,
// comm/tcp).
//
// All calls but `lost`, `wake` and `call` come from the rank's one communication thread (comm/communicator.hpp), unless
// the transport drives the rank itself. Nothing
// blocks: messages are started, then asked for until they are done; asking is what makes progress. In the steady state
// a transport allocates nothing: what a ticket needs is kept for the next one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collective/semantics.hpp"

namespace weft {

struct Segment {
  std::byte* data = nullptr;
  std::int64_t bytes = 0;
};

// What becomes of bytes that arrive: stored in dst, or dst = operand (+) arrived, element by element.
struct Landing {
  std::span<const Segment> dst;
  std::span<const Segment> operand;  // empty: stored as they are
  ElementType type = ElementType::fp32;
  ReduceOp op = ReduceOp::sum;
  double scale = 1;  // applied to the result of the reduction; below 1 to average
};

struct Ticket {
  std::int64_t value = -1;
  bool empty() const { return value < 0; }
};

// A peer that is gone, and how that was noticed.
struct LostRank {
  std::int64_t rank = -1;
  std::string reason;  // "its connection closed", "no answer for 10 s"
};

// The transport library's own collective, ready to be called again and again on the communication thread. In place
// where input == output.
class NativeCollective {
 public:
  virtual ~NativeCollective() = default;
  virtual void run(const std::byte* input, std::byte* output) = 0;  // blocks
  // The call that the library carries out while it is asked whether it is done; the memory must stay until then.
  virtual void start(const std::byte* input, std::byte* output) = 0;
  virtual bool done() = 0;
};

struct NativeRequest {
  CollectiveSpec spec;
  ElementType type = ElementType::fp32;
  ReduceOp op = ReduceOp::sum;
  std::vector<std::int64_t> members;  // ranks of the transport, in the order of the collective
  std::vector<std::int64_t> sizes;    // elements by piece (collective/piece_sizes.hpp)
  // All members start the collectives of a queue in the same order, one when the last has ended; those of different
  // queues in any order.
  std::int64_t queue = 0;
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
  // Changes while messages of this rank move: what takes long is told from what stands still, also within a message.
  virtual std::uint64_t moved() const { return 0; }
  // Ends a pause from another thread.
  virtual void wake() = 0;

  // A transport with a clock of its own (comm/local, paced) also runs the caller's work: it calls `round` on a thread
  // of its choice whenever something has happened to this rank, and then the calls above come from that thread. False
  // where the communication thread alone works. Null ends it: `round` is not running any more when that returns.
  virtual bool drives(std::function<void()> /*round*/) { return false; }
  // From any thread: `round` has something to do from then on.
  virtual void call(Clock::time_point /*since*/) {}
  // While `work` runs, `round` does not: around all that shares state with it.
  virtual void exclusively(const std::function<void()>& work) { work(); }
  // The time of what is being worked on: behind the clock where a transport catches up with its own.
  virtual Clock::time_point now() const { return Clock::now(); }

  // Whether work() may be asked for. Otherwise the caller copies and reduces its own memory itself.
  virtual bool has_workers() const { return false; }
  // Lands `src` as if it had arrived; done as messages are.
  virtual Ticket work(std::span<const Segment> /*src*/, const Landing& /*landing*/) { return {}; }

  // Whether a Landing may have an operand. Otherwise the caller receives first and reduces then.
  virtual bool reduces_on_arrival() const { return false; }
  // Whether messages between processes are copies in the memory of one machine: then there are no links to share.
  virtual bool through_memory() const { return false; }
  // Whether there is a library with collectives of its own.
  virtual bool has_library() const { return false; }
  // Null where the library has no such call. All members must ask in the same order.
  virtual std::unique_ptr<NativeCollective> native(const NativeRequest&) { return nullptr; }
  // From any thread: a rank that is known to be gone.
  virtual std::optional<LostRank> lost() { return std::nullopt; }
  // From any thread: this rank cannot go on. The others, where they can be told, see it as lost for this reason. Called
  // on the communication thread it also ends all messages: their memory is not touched any more.
  virtual void give_up(const std::string& /*why*/) {}
  // From any thread: how long a rank has given no sign of life; zero where it is not watched.
  virtual std::chrono::nanoseconds silence(std::int64_t /*rank*/) { return {}; }
  // From any thread: the caller takes a silent rank for lost. All ranks are told, and lost() names it, unless another
  // was lost before.
  virtual void declare_lost(const LostRank& /*silent*/) {}
};

}  // namespace weft
