// Collectives of one rank: prepared once, started often, waited for.
//
// A communication thread of our own runs them while the caller computes; it never relies on the transport library to
// make progress by itself. A queue runs its collectives one after the other; queues run concurrently. All ranks of a
// group must start the same collectives on a queue in the same order; with `check` they first compare their calls and
// name what differs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collective/piece_sizes.hpp"
#include "collective/program.hpp"
#include "comm/transport.hpp"
#include "comm/uneven_exchange.hpp"
#include "comm/whereabouts.hpp"

namespace weft {

class CommunicationThread;

// What a rank prepares. The program's rank i is members[i]; helpers of the program follow the members.
struct PreparedCall {
  // Null means the transport's own (`native`) collective, described by `spec`, unless the call is uneven.
  std::shared_ptr<const Program> program;
  CollectiveSpec spec;
  PieceSizes sizes;
  ElementType type = ElementType::fp32;
  ReduceOp op = ReduceOp::sum;
  std::vector<std::int64_t> members;
  std::int64_t queue = 0;  // 0 .. 1023, the same on all members
  std::string label;       // for messages: "dp gradients, bucket 3"
  // Identifies the call: the same number on all members, and a different one for every other call of the queue. With
  // `check`, members compare it; with -1 they compare labels instead. The two ends of a message have labels of their
  // own, so they need a number.
  std::int64_t identity = -1;
  // For reduce_scatter: adds the result to what the output holds. The caller's input is overwritten.
  bool accumulate = false;
  int thread_blocks = 0;      // of a device that work on a library's collective; 0: the library chooses
  std::int64_t segments = 1;  // the most that a buffer given to start() may have
  // For an all_to_all whose sizes are data; it has no program and no `sizes`. start() gets two segments on either side:
  // the blocks, and a table of ElementRange that says which units leave (or arrive: read or written, as the exchange
  // says).
  std::optional<UnevenBlocks> uneven = {};
  // For a native collective: the communication thread stays inside the library until the call ends, and no other queue
  // moves. Libraries are fastest this way, but calls of several queues may then wait for each other for ever.
  bool blocking = false;
  // Called on the communication thread (or the thread on which paced links run the rank) when an execution has ended,
  // with the times at which it began, after all calls before it on its queue, and ended. With paced links these are
  // times of the emulated network. It may start other calls, and this one again, but must neither wait nor prepare. A
  // caller that waits for the execution may continue before this returns. What it throws fails the run.
  std::function<void(Transport::Clock::time_point began, Transport::Clock::time_point ended)> on_done = {};
};

struct CommunicatorOptions {
  std::int64_t credit = std::int64_t{1} << 62;  // bytes that a queue may have in flight; a larger message is sent alone
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);  // without progress
  // A rank that gives no sign of life for so long while others wait counts as lost, whatever the timeout; zero means
  // never.
  std::chrono::nanoseconds silence{0};
  bool check = false;  // compare calls before they run
  // Called once, on whatever thread notices first, with the words that wait() will throw.
  std::function<void(const std::string&)> on_failure = {};
  // Called after the other ranks have been told. It may end the process, whatever its other threads do.
  std::function<void(const std::string&)> after_failure = {};
};

class Communicator {
 public:
  struct Prepared;  // owned by the communicator
  struct Handle {
    Prepared* call = nullptr;
    std::uint64_t turn = 0;
  };

  Communicator(std::unique_ptr<Transport> transport, CommunicatorOptions options);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  std::int64_t rank() const;
  std::int64_t size() const;
  // Whether native collectives may be prepared.
  bool has_library() const;
  // CommunicatorOptions::timeout.
  std::chrono::nanoseconds timeout() const;
  // Whether messages are copies in the memory of one machine (TransportFeatures::through_memory).
  bool through_memory() const;

  // Allocates everything that running it needs. The program must have been proven (collective/verify).
  Prepared& prepare(PreparedCall call);
  // Gives back the memory of a collective that is not under way and will not be started again. From the thread that
  // prepares.
  void release(Prepared& prepared);
  // Returns at once, from any thread. One start of a prepared collective may be under way at a time. `input` may be
  // null where the rank has none; in place, `output` is the one buffer and `input` is ignored. Throws RunFailed once
  // the run has failed.
  Handle start(Prepared& prepared, const void* input, void* output);
  // The same with buffers in several places: element i is the i-th of the segments one after the other. Segments hold
  // whole elements, or nothing. The memory they name must stay until it is done; the lists need not.
  Handle start(Prepared& prepared, std::span<const Segment> input, std::span<const Segment> output);
  bool done(Handle handle);
  // Throws RunFailed where it cannot end.
  void wait(Handle handle);
  // Throws RunFailed once the run has failed. May be called from any thread.
  void require_alive();
  // May be called from any thread when this rank cannot continue. When it returns, the other ranks have been told, and
  // whoever waits, here or there, gets RunFailed with these words. Only the first failure counts.
  void fail(const std::string& why);

  // Says where in its work this rank is, which becomes part of every message. While a place is set the rank is at work:
  // the loss of another rank then fails the run even if no call is under way.
  Whereabouts& whereabouts();

 private:
  std::unique_ptr<CommunicationThread> thread_;
};

}  // namespace weft
