// A transport between the processes of an MPI job. It does not rely on the library to make progress by itself: the
// communication thread polls and rests in between (comm/idle.hpp). Where Weft is built without MPI, everything but
// mpi_is_built() throws Error.
//
// Works under whatever starts the job and the library understands (docs/launching.md): mpirun, with a hostfile, srun.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/idle.hpp"
#include "comm/rank_health.hpp"
#include "comm/transport.hpp"

namespace weft {

bool mpi_is_built();

// The process's share in the MPI job: one at a time, made and destroyed on the same thread. Its calls and those of its
// transports must not overlap in time (MPI_THREAD_SERIALIZED), whatever thread makes them.
class MpiSession {
 public:
  MpiSession();
  // Ends MPI, which waits for the other processes; not after abandon().
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  std::int64_t rank() const;
  std::int64_t size() const;
  // Every process gives a string and gets all of them, by rank. All must call.
  std::vector<std::string> exchange(const std::string& mine);
  // May be called from any thread when a peer is gone or a message is stuck, so that MPI cannot be ended in order.
  void abandon();

  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

struct MpiOptions {
  // A message is given to the library in pieces, alike on both ends. Open MPI sends up to 64 KiB over TCP at once; for
  // more it asks the receiver first, whose answer queues behind what the receiver itself sends, and then serves all
  // answered messages in turn, so that they end together. In pieces that need no question, messages stream in order:
  // with 200 Mbit links a ring all-reduce of 4 MiB ran at 0.99 of the goodput instead of 0.90. The library copies such
  // pieces, so only the beginning of a message is sent this way.
  std::int64_t short_piece = 60 << 10;
  std::int64_t streamed = 4 << 20;  // bytes of a message that go in short pieces
  // Whether all ranks are on one machine: nothing queues there, and the library copies whole messages once, pieces
  // twice.
  bool one_machine = false;
  // The rest of a message is cut into at most 64 pieces within these lengths.
  std::int64_t shortest_long_piece = 1 << 20;
  std::int64_t longest_piece = std::int64_t{1} << 30;  // the library counts up to 2^31 - 1
  IdleOptions idle = {};
  // Watches the other processes, because MPI itself reports no loss. It must outlive the transport; null: nobody
  // watches.
  RankHealth* health = nullptr;
};

// All processes must make their transports in the same order. A transport that is destroyed with messages under way
// abandons the session.
std::unique_ptr<Transport> make_mpi_transport(std::shared_ptr<MpiSession> session, const MpiOptions& options);
// With a session of its own.
std::unique_ptr<Transport> make_mpi_transport(const MpiOptions& options);

}  // namespace weft
