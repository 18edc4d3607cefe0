// Records what is called in the streams of a device, to start it again and again as one. A host needs some
// microseconds for every call; where kernels are shorter than that, the device waits for the host. A recording (a CUDA
// graph) takes one call, however much is in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.hpp"

namespace weft {

using StreamId = Id<struct StreamTag>;
using RecordingId = Id<struct RecordingTag>;

class CallRecorder {
 public:
  virtual ~CallRecorder() = default;

  // Until end() or abandon(), nothing that is called in these streams is carried out: kernels, events, clear(), and
  // what libraries enqueue in them. In a recording, streams keep the order of their calls; its first calls wait for
  // nothing but events. Whoever waits in it for an event that was recorded outside waits, at every start, for what was
  // recorded last. All that kernels do at their first call (take memory, choose an algorithm) was done before.
  virtual void begin(std::span<const StreamId> streams) = 0;
  // Throws RunFailed where the device cannot start what was recorded. Results that were asked for while it was recorded
  // may be delivered after every start.
  virtual RecordingId end() = 0;
  virtual void abandon() = 0;  // throws nothing

  // How many pieces of host data (tokens, say, or a learning rate) calls have been given since begin(). They are not
  // part of the recording.
  virtual std::size_t host_data_given() const = 0;
  // Before every start(): the calls that were given host data are called again, in the order in which they were
  // recorded, and only take it. The start before must be over.
  virtual void renew_host_data(RecordingId recording) = 0;
  // Begins when what is before it in the stream has ended; what is behind it there waits until all of it has.
  virtual void start(RecordingId recording, StreamId stream) = 0;
  // It may still run. Throws nothing.
  virtual void forget(RecordingId recording) = 0;
};

}  // namespace weft
